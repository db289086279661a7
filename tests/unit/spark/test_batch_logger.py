"""The log line of a micro-batch."""

import json
import logging
from types import SimpleNamespace

from ackq.spark import BatchLogger
from ackq.spark.batch_logger import line

BACKLOG = {"v": 1, "ready": 1200, "unacked": 7, "oldest_age_ms": 2500, "redelivered": 3}
PROGRESS = {
    "id": "q-1",
    "runId": "r-1",
    "name": "enrich",
    "batchId": 12,
    "numInputRows": 1000,
    "durationMs": {"addBatch": 400, "latestOffset": 20, "triggerExecution": 500},
    "sources": [{"description": "x", "latestOffset": BACKLOG}],
}


def test_a_batch():
    """The line names each figure of the batch."""
    assert line(PROGRESS) == (
        "query 'enrich' batch 12: 1,000 rows in 0.50 s (2,000/s); ready 1,200, unacked 7,"
        " oldest 2.5 s, redelivered 3; addBatch 400 latestOffset 20 ms"
    )


def test_other_batches():
    """Backlogs add up, without those of other formats; a replay has none, nor a name its query."""
    more = {"latestOffset": json.dumps({**BACKLOG, "oldest_age_ms": 9000, "warning": "stuck"})}
    others = [{"latestOffset": each} for each in ({"topic": {"0": 5}}, 7, "9", None)]
    found = line({**PROGRESS, "sources": [*PROGRESS["sources"], more, *others]})
    assert "ready 2,400, unacked 14, oldest 9.0 s, redelivered 6;" in found
    assert found.endswith("ms; stuck")
    found = line({**PROGRESS, "name": None, "sources": others, "durationMs": {}})
    assert found == "query q-1 batch 12: 1,000 rows in 0.00 s (0/s)"


def test_lines_are_logged(caplog):
    """S8: one line per batch and one per failed query; none for a stopped query."""
    caplog.set_level(logging.INFO)
    progress = SimpleNamespace(json=json.dumps(PROGRESS))
    for name in (None, "theirs"):
        listener = BatchLogger(name and logging.getLogger(name))
        listener.onQueryProgress(SimpleNamespace(progress=progress))
        for exception in (None, "it broke\n at x"):
            listener.onQueryTerminated(SimpleNamespace(id="q-1", exception=exception))
    assert caplog.messages == [line(PROGRESS), "query q-1 failed: it broke"] * 2
