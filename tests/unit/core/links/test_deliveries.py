"""Deliveries are stored once, in one record (L4, L5, L9, L11); see `test_deliveries_model`."""

from dataclasses import replace

import pytest
from pyroaring import BitMap

from ackq import limits
from ackq.errors import ClosedError, InvalidArgumentError, LimitError, QueueFullError
from tests.unit.core.harness import SECOND_US, Harness, refused
from tests.unit.core.link_process import LinkProcess, accept


def test_frames_out_of_turn_are_refused(process: LinkProcess) -> None:
    """L5, L17: what was answered, what comes after a gap, and a frame of another subscription."""
    frame = process.command(["a", "b"])
    process.harness.do(frame)
    process.number = 3
    process.store(["c"], lowest_unanswered=3)
    later = replace(frame, first_number=3, lowest_unanswered=4)
    for wrong, lowest in ((frame, 3), (later, 4)):
        refusal = f"the deliveries below {lowest} were answered"
        refused(InvalidArgumentError, refusal, process.harness.do, wrong)
    gap = refused(InvalidArgumentError, "the next number is 4", process.store, ["b"], first=5)
    assert gap.fields["next_number"] == "4"
    process.subscribe()
    told = "subscription 1, but 2 is the current one"
    refused(InvalidArgumentError, told, process.harness.do, frame)


def test_another_link_has_its_own_entries(process: LinkProcess) -> None:
    """L4: one link does not know the entries of another."""
    process.store(["a"])
    other = LinkProcess(process.harness, "other", source="amqp://elsewhere/queue")
    other.subscribe()
    assert other.matched(["a"]) == [False]


def test_a_full_queue_keeps_nothing_of_a_frame(harness: Harness) -> None:
    """L5, P8: no row of a refused frame is kept; the frame comes again under its numbers."""
    harness.declare("q", max_length=3)
    process = LinkProcess(harness)
    process.subscribe()
    process.store(["a", "b"])
    process.subscribe()
    full = refused(QueueFullError, "has room for 1 only", process.store, ["a", "x", "y"])
    assert full.fields["fitting"] == "2"
    process.store(["z"])
    process.subscribe()
    before = harness.core.snapshot()
    full = refused(QueueFullError, "is full", process.store, ["a", "b", "x", "z"])
    assert full.fields["fitting"] == "2"
    assert harness.core.snapshot() == before
    assert process.matched(["a", "b"]) == [True, True]
    accept(harness, 1)
    assert process.positions(["x"]) == [4]


def test_entries_have_a_bound(process: LinkProcess, monkeypatch) -> None:
    """I6, L10: over the bound a frame is refused, with the remedy; matched rows need no room, and
    proven entries that are old enough, and not matched now, make it.
    """
    monkeypatch.setattr(limits, "MAX_LINK_ENTRIES", 3)
    process.store(["a", "b"])
    refused(LimitError, "ackq link remove l --forget", process.store, ["c", "d"])
    process.subscribe()
    assert process.matched(["b", "a", "c"]) == [True, True, False]
    accept(process.harness, 1, 2, 3)
    process.permit()
    process.prove(3)
    refused(LimitError, "remembers 3 messages", process.store, ["d"])
    process.subscribe()
    process.harness.now_us += (limits.LINK_ACK_GRACE_S + 1) * SECOND_US
    refused(LimitError, "remembers 3 messages", process.store, ["a", "d", "e", "f"])
    assert process.matched(["a", "d", "e"]) == [True, False, False]
    assert len(process.state().entries) == 3


# Deliveries after those of the test, marked as redelivered; and whether they end the subscription.
REPEATS = {
    "held": (["a"], {}, True),
    "settled and proven": (["s"], {}, True),
    "behind a new one": (["x", "a"], {}, True),
    "of the same frame": (["x", "x"], {"redelivered": BitMap([1])}, True),
    "a mark on the first": (["x", "x"], {"redelivered": BitMap([0])}, False),
    "not marked": (["a"], {"redelivered": False}, False),
    "of an earlier subscription": (["old"], {}, False),
    "another message with the id": (["y"], {"ids": ["a"]}, False),
    "by its content": (["c"], {"content": True}, False),
    "without a key": (["n"], {"ids": [""]}, False),
    "beside one permitted at once": (["a", "x"], {"at_once": BitMap([1])}, False),
    "the link does not ask for it": (["a"], {"repeats_end": False}, False),
}


@pytest.mark.parametrize(("bodies", "options", "ends"), REPEATS.values(), ids=REPEATS)
def test_repetitions_end_a_subscription(process: LinkProcess, bodies, options, ends) -> None:
    """L6, L12: a refused frame changes nothing (see `Harness`), and the next one matches it."""
    process.store(["old"])
    process.subscribe()
    process.store(["s", "a"])
    accept(process.harness, 2)
    process.permit()
    process.prove(1)
    process.store(["c"], content=True)
    process.store(["n"], ids=[""])
    options = {"redelivered": True, "repeats_end": True} | options
    process.harness.now_us += limits.LINK_ACK_GRACE_S * SECOND_US
    if not ends:
        assert len(process.positions(bodies, **options)) == len(bodies)
        return
    with pytest.raises(ClosedError, match="in the same subscription"):
        process.store(bodies, **options)
    process.subscribe()
    assert process.matched(bodies, **options) == [body in "as" for body in bodies]
    # In the first time of a subscription another message may be the equal of one.
    assert process.matched(bodies, **options) == [False] * len(bodies)


def test_deliveries_that_need_nothing_more_are_forgotten(process: LinkProcess) -> None:
    """I6, L5: answered, acknowledged and proven deliveries are forgotten; others still reported."""
    for begin in range(0, 20_000, 1_000):
        process.store(map(str, range(begin, begin + 1_000)), lowest_unanswered=process.number)
        accept(process.harness, *range(begin + 2, begin + 1_001))
        process.permit()
        process.proven += 999
    assert process.state().deliveries[1].sum() < 8_000
    assert [run.first_position for run in process.open().runs][:3] == [1, 1001, 2001]
