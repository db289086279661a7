"""Delta as sink and as source, with replays, in the process of the jobs."""

import json
from collections import Counter
from pathlib import Path

import pytest

from ackq.spark.engine import is_older_than
from tests.spark.ledger import counted, ids, once, publish

pytestmark = [
    pytest.mark.spark,
    pytest.mark.delta,
    pytest.mark.skipif(not is_older_than(4, 3), reason="there is no Delta for Spark 4.3"),
]

IDS = ids(0, 9)


def test_queue_to_delta_to_queue(next_line, broker, admin, tmp_path):
    """K1, K2, K3: with commit entries lost, each message is in the table and the queue once."""
    for queue in ("in", "out"):
        admin.declare_queue(queue)
    publish(broker.endpoint, "in", IDS)
    program = Path(__file__).with_name("delta_both_ways.py")
    assert Counter(json.loads(next_line(program, broker.endpoint, tmp_path))) == once(IDS)
    assert counted(admin, "out") == once(IDS)
    for queue, ready, accepted in (("in", 0, 10), ("out", 10, 0)):
        info = admin.queue(queue)
        assert (info.ready, info.unacked, info.staged) == (ready, 0, 0)
        assert info.accepted == accepted
