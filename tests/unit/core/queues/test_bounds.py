"""Bounds: each message counts its own bytes, with whatever other messages it came (Q3, P8)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.errors import QueueFullError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness

row_sizes = st.lists(st.integers(0, 60), min_size=1, max_size=12)


def payload_bytes(harness: Harness, *queues: str) -> list[int]:
    return [harness.info(queue).payload_bytes for queue in queues]


@given(sizes=row_sizes, most=st.integers(1, 200), length=st.integers(0, 6), data=st.data())
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_bounds_count_message_by_message(overflow, sizes, most, length, data) -> None:
    """Q3, P8: a block leaves the queue as its messages do one by one."""
    together, single = Harness(), Harness()
    cut = data.draw(st.integers(0, len(sizes)))
    for harness in (together, single):
        harness.declare("q", max_bytes=most, max_length=length, overflow=overflow)
    for block in filter(None, (sizes[:cut], sizes[cut:])):
        together.publish_to("q", len(block), sizes=block)
    for size in sizes:
        single.publish_to("q", 1, sizes=[size])
    assert together.browse("q") == single.browse("q")
    assert payload_bytes(together, "q") == payload_bytes(single, "q")


def test_what_is_redriven_fits_by_its_own_size(harness: Harness) -> None:
    """Q6, Q3: the lowest dead letters are redriven, as long as the next one fits."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead", max_bytes=100)
    harness.publish_to("q", 3, sizes=[30, 60, 10])
    harness.consume("q", Outcome.REJECTED)
    harness.publish_to("q", 1, row_bytes=15)
    assert harness.do(c.Redrive("dead")).messages == 1
    assert harness.browse("q") == ["m4", "m1"]


def test_staged_rows_reserve_their_own_bytes(harness: Harness) -> None:
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


def test_a_journal_from_before_the_sizes_opens(harness: Harness) -> None:
    """I2, Q7: a record without sizes gives each row an equal share of its part's bytes."""
    harness.declare("q")
    harness.publish_to("q", 4, sizes=[1, 2, 3, 94])
    old = Core()
    for sequence, record in enumerate(harness.log, 1):
        changes = {"sizes": b""} if isinstance(record, records.Published) else {}
        old.apply(sequence, msgspec.structs.replace(record, **changes))
    old = Core.restore(old.snapshot())
    assert views.list_queues(old.state, "q")[0].payload_bytes == 100
    decision = old.decide(c.Deliver(b"x" * 16, "q", 1, no_ack=True), harness.now_us)
    old.apply(old.sequence + 1, *decision.records)
    assert views.list_queues(old.state, "q")[0].payload_bytes == 75


def test_sizes_go_with_their_block(harness: Harness) -> None:
    """I6: no sizes are kept after the last message of a block."""
    harness.declare("q", "r")
    harness.bind("x", "fanout", q="", r="")
    harness.publish(["k"] * 3, exchange="x", sizes=[1, 2, 3])
    harness.do(c.PurgeQueue("q"))
    assert len(harness.core._state.blocks.sizes) == 1
    harness.do(c.PurgeQueue("r"))
    assert len(harness.core._state.blocks.sizes) == 0


@pytest.mark.parametrize(
    ("overflow", "left"),
    [("drop-head", ["m1", "m2", "m4"]), ("reject-publish", ["m1", "m2", "m3"])],
)
def test_their_bytes_fill_nothing_either(harness: Harness, overflow: str, left: list[str]) -> None:
    """Q3: also the bytes of a message that no queue of this size could hold."""
    harness.declare("q", max_bytes=100, overflow=overflow)
    harness.publish_to("q", 1, row_bytes=100)
    harness.core.note_consumers("q", 1, lambda: c.Demand(2, 2))
    harness.publish_to("q", 3, sizes=[5_000, 60, 70])
    assert harness.browse("q") == left
