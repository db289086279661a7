"""Bounds: each message counts its own bytes, with whatever other messages it came (Q3, P8)."""

import pytest

from ackq.errors import QueueFullError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c


def payload_bytes(harness, *queues):
    return [harness.info(queue).payload_bytes for queue in queues]


def test_what_is_redriven_fits_by_its_own_size(harness):
    """Q6, Q3: the lowest dead letters are redriven, as long as the next one fits."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead", max_bytes=100)
    harness.publish_to("q", 3, sizes=[30, 60, 10])
    harness.consume("q", Outcome.REJECTED)
    harness.publish_to("q", 1, row_bytes=15)
    assert harness.do(c.Redrive("dead")).messages == 1
    assert harness.browse("q") == ["m4", "m1"]


def test_staged_rows_reserve_their_own_bytes(harness):
    """K3, P13, Q3: for stages and transactions; a commit to drop-head drops by the same sizes."""
    harness.declare("q", max_bytes=100)
    harness.declare("ring", max_bytes=100, overflow="drop-head")
    harness.declare("other")
    keys, sizes = ["q", "other", "ring", "ring"], [90, 5_000, 80, 30]
    stage = harness.stage("w", 1, keys, name="s", sizes=sizes)
    with pytest.raises(QueueFullError, match="1 message with 90 bytes are staged"):
        harness.stage("w", 1, ["q", "other"], name="t", sizes=[11, 1])
    harness.commit("w", 1, stage)
    assert harness.browse("ring") == ["s3"]
    assert payload_bytes(harness, "q", "ring", "other") == [90, 30, 5_000]
    transaction = harness.transact(["q", "other"], sizes=[10, 1_000])
    harness.do(c.CommitTransaction(*transaction, 2))
    assert payload_bytes(harness, "q", "other") == [100, 6_000]


@pytest.mark.parametrize(
    ("overflow", "left"),
    [("drop-head", ["m1", "m2", "m4"]), ("reject-publish", ["m1", "m2", "m3"])],
)
def test_their_bytes_fill_nothing_either(harness, overflow, left):
    """Q3: also the bytes of a message that no queue of this size could hold."""
    harness.declare("q", max_bytes=100, overflow=overflow)
    harness.publish_to("q", 1, row_bytes=100)
    harness.core.note_consumers("q", 1, lambda: c.Demand(2, 2))
    harness.publish_to("q", 3, sizes=[5_000, 60, 70])
    assert harness.browse("q") == left
