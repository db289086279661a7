"""Effects of outcomes: all states, the delivery limit, the redelivery delay (C4, C13, C14)."""

from collections.abc import Callable
from typing import Any

import pytest
from pyroaring import BitMap64

from ackq.errors import UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import PUBLISHER, SECOND_US, Harness

# Properties, earlier failures, whether the queue is deleted; then for FAILED and REJECTED
# the place of the message afterwards, and the answer's counts of dead letters and drops.
KEPT, GONE, DEAD, DROPPED = ("ready", 0, 0), ("gone", 0, 0), ("dead", 1, 0), ("gone", 0, 1)
TABLE = {
    "plain": ({}, 0, False, KEPT, DROPPED),
    "dead letters": ({"dead_letter_queue": "d"}, 3, False, KEPT, DEAD),
    "below the limit": ({"dead_letter_queue": "d", "delivery_limit": 2}, 1, False, KEPT, DEAD),
    "at the limit": ({"dead_letter_queue": "d", "delivery_limit": 2}, 2, False, DEAD, DEAD),
    "at the limit, drop": (
        {"drop_on_limit": True, "delivery_limit": 1},
        1,
        False,
        DROPPED,
        DROPPED,
    ),
    "below, drop": ({"drop_on_limit": True, "delivery_limit": 2}, 1, False, KEPT, DROPPED),
    "both": (
        {"drop_on_limit": True, "dead_letter_queue": "d", "delivery_limit": 1},
        1,
        False,
        DEAD,
        DEAD,
    ),
    "no one to take it": ({"delivery_limit": 1}, 5, False, KEPT, DROPPED),
    "drop without limit": ({"drop_on_limit": True}, 5, False, KEPT, DROPPED),
    "delay": ({"redelivery_delay_ms": 500}, 0, False, ("delayed", 0, 0), DROPPED),
    "deleted": ({}, 0, True, GONE, DROPPED),
    "deleted, dead letters": ({"dead_letter_queue": "d"}, 0, True, GONE, DEAD),
    "deleted, at the limit": ({"dead_letter_queue": "d", "delivery_limit": 1}, 1, True, DEAD, DEAD),
    "deleted, delay": ({"redelivery_delay_ms": 500}, 0, True, GONE, DROPPED),
}


def held_tag(harness: Harness, failures: int) -> int:
    """One message of q unacked on channel x, after `failures` failures and one release."""
    harness.publish_to("q", 1)
    for outcome in [Outcome.RELEASED, *[Outcome.FAILED] * failures]:
        (row,) = harness.deliver("x", "q")
        harness.settle("x", outcome, row[0])
        harness.wait(1000)
    (row,) = harness.deliver("x", "q")
    return row[0]


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("again", ["live", "restored"])
def test_every_state_and_outcome(harness: Harness, row: str, outcome: Outcome, again: str) -> None:
    """C4, C13, C14: the message is in one place afterwards, for every state and outcome."""
    properties, failures, deleted, failed, rejected = TABLE[row]
    released = GONE if deleted else KEPT
    place, dead, dropped = {
        Outcome.ACCEPTED: GONE,
        Outcome.FAILED: failed,
        Outcome.REJECTED: rejected,
        Outcome.RELEASED: released,
    }[outcome]
    harness.declare("d")
    harness.declare("q", **properties)
    tag = held_tag(harness, failures)
    if deleted:
        harness.do(c.DeleteQueue("q", force=True))
    if again == "restored":
        harness.core = Core.restore(harness.core.snapshot())
    assert harness.settle("x", outcome, tag) == c.Settlement(1, dead, dropped)
    assert views.outstanding(harness.core.state, b"x").to_array().tolist() == []
    assert (harness.browse("d") == ["m1"]) == (place == "dead")
    if not deleted:
        info = harness.info("q")
        assert (info.ready, info.delayed) == (place == "ready", place == "delayed")
        assert (info.unacked, info.accepted) == (0, outcome is Outcome.ACCEPTED)
        assert (info.dead_lettered, info.dropped) == (dead, dropped)
    assert (harness.core.drain_dead_blocks() == []) == (place != "gone")


def settled(harness: Harness) -> None:
    harness.settle("x", Outcome.ACCEPTED, 1)


def release_counts(harness: Harness) -> None:
    harness.settle("x", Outcome.RELEASED, 1)


def given_again(harness: Harness) -> None:
    harness.settle("x", Outcome.RELEASED, 1)
    assert harness.deliver("x", "q") == [(2, "m1", 2)]


def of_another_channel(harness: Harness) -> None:
    harness.do(c.CloseChannel(b"x"))
    assert harness.deliver("y", "q") == [(1, "m1", 2)]


def closed(harness: Harness) -> None:
    harness.do(c.CloseChannel(b"x"))


def restarted(harness: Harness) -> None:
    harness.restart()


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize(
    "ended", [settled, release_counts, given_again, of_another_channel, closed, restarted]
)
def test_a_tag_is_settled_once(
    harness: Harness, ended: Callable[[Harness], None], outcome: Outcome
) -> None:
    """C2: a settled or requeued tag is unknown for every outcome, and the state is unchanged."""
    harness.declare_filled("q", 1)
    harness.deliver("x", "q")
    ended(harness)
    before = harness.core.snapshot()
    for tags, up_to in (((1,), 0), ((), 1)):
        with pytest.raises(
            UnknownDeliveryTagError, match="PRECONDITION_FAILED unknown delivery tag 1:"
        ):
            harness.settle("x", outcome, *tags, up_to=up_to)
    assert harness.core.snapshot() == before


def test_the_limit_counts_failures_not_deliveries(harness: Harness) -> None:
    """C13: releases and lost channels do not count; one FAILED too many moves the message."""
    harness.declare("q", delivery_limit=2, dead_letter_queue="d")
    harness.declare("d")
    harness.publish_to("q", 1)
    for _ in range(5):
        (row,) = harness.deliver("x", "q")
        harness.settle("x", Outcome.RELEASED, row[0])
        harness.deliver("y", "q")
        harness.do(c.CloseChannel(b"y"))
    for dead in (0, 0, 1):
        (row,) = harness.deliver("x", "q")
        assert harness.settle("x", Outcome.FAILED, row[0]).dead_lettered == dead
    assert row[2] == 13
    ((piece,),) = (views.browse(harness.core.state, "d"),)
    assert piece.origin is not None
    assert (piece.origin.cause, piece.origin.reason) == ("delivery_limit", "delivery_limit")
    assert piece.origin.delivery_counts.tolist() == [13]


@pytest.mark.parametrize(
    ("outcome", "cause"), [(Outcome.FAILED, "delivery_limit"), (Outcome.REJECTED, "rejected")]
)
def test_a_dead_letter_says_cause_and_reason(
    harness: Harness, outcome: Outcome, cause: str
) -> None:
    """C13: the cause, and the reason that came with the last settlement."""
    harness.declare("q", delivery_limit=1, dead_letter_queue="d")
    harness.declare("d")
    harness.publish_to("q", 1)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, 1, reason="the first time")
    harness.deliver("x", "q")
    harness.settle("x", outcome, 2, reason="the last time")
    harness.restart()
    (piece,) = views.browse(harness.core.state, "d")
    assert piece.origin is not None
    assert (piece.origin.cause, piece.origin.reason) == (cause, "the last time")


def test_only_what_is_over_the_limit_moves(harness: Harness) -> None:
    """C13: one settlement of many messages treats each by its own count."""
    harness.declare("q", delivery_limit=1, dead_letter_queue="d")
    harness.declare("d")
    harness.publish_to("q", 6)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, 2, 3, 5)
    harness.settle("x", Outcome.RELEASED, up_to=6)
    harness.deliver("x", "q")
    assert harness.settle("x", Outcome.FAILED, up_to=12) == c.Settlement(6, 3, 0)
    assert harness.browse("d") == ["m2", "m3", "m5"]
    assert harness.browse("q") == ["m1", "m4", "m6"]


def test_failures_survive_a_restart(harness: Harness) -> None:
    """C13, Q7: failure counts survive, as delivery counts do."""
    harness.declare_filled("q", 1, delivery_limit=1, drop_on_limit=True)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, 1)
    harness.restart()
    harness.deliver("x", "q")
    assert harness.settle("x", Outcome.FAILED, 1) == c.Settlement(1, 0, 1)


def waits(harness: Harness, queue: str, since_us: int) -> float:
    """Seconds until a queue's delayed messages are ready."""
    due_us = views.next_due_us(harness.core.state)
    assert harness.info(queue).delayed
    return (due_us - since_us) / SECOND_US


def test_a_delay_doubles_with_each_failure(harness: Harness) -> None:
    """C14: up to the longest delay, never early, at most 1/512 of itself or 17 ms late."""
    harness.declare_filled("q", 1, redelivery_delay_ms=1000, redelivery_delay_max_ms=6000)
    for seconds in (1, 2, 4, 6, 6):
        (row,) = harness.deliver("x", "q")
        harness.settle("x", Outcome.FAILED, row[0])
        assert harness.deliver("x", "q") == []
        found = waits(harness, "q", harness.now_us - 1)
        assert seconds <= found <= seconds + max(seconds / 512, 0.017)
        assert harness.wait(seconds - 0.01) == c.Ticked(0, 0, 0)
        assert harness.wait(0.05) == c.Ticked(0, 0, 1)


def test_a_delay_without_a_longest_ends_at_five_minutes(harness: Harness) -> None:
    """C14: five minutes is the default, however often the message failed."""
    harness.declare_filled("q", 1, redelivery_delay_ms=1000)
    for _ in range(60):
        (row,) = harness.deliver("x", "q")
        harness.settle("x", Outcome.FAILED, row[0])
        harness.wait(301)
    (row,) = harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, row[0])
    assert 300 <= waits(harness, "q", harness.now_us) <= 301


def test_a_longest_delay_below_the_default_first_one_is_kept(harness: Harness) -> None:
    """C14: a first delay above five minutes is its own bound."""
    harness.declare_filled("q", 1, redelivery_delay_ms=400_000)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, 1)
    assert 400 <= waits(harness, "q", harness.now_us) <= 401


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.RELEASED])
def test_a_settlement_may_say_the_delay(harness: Harness, outcome: Outcome) -> None:
    """C14: it replaces the queue's delay, and applies to RELEASED, too."""
    harness.declare_filled("q", 2, redelivery_delay_ms=60_000)
    harness.deliver("x", "q")
    harness.settle("x", outcome, 2, delay_ms=2000)
    assert 2 <= waits(harness, "q", harness.now_us) < 2.05
    assert harness.core.drain_woken() == {"q"}
    assert harness.wait(3) == c.Ticked(0, 0, 1)
    assert harness.core.drain_woken() == {"q"}
    assert harness.deliver("y", "q") == [(1, "m2", 2)]


def test_delays_by_failures_in_one_settlement(harness: Harness) -> None:
    """C14: each message waits by its own failures."""
    harness.declare_filled("q", 3, redelivery_delay_ms=1000)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, 2)
    harness.wait(2)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.FAILED, up_to=4)
    assert harness.wait(1.1).matured == 2
    assert harness.deliver("y", "q") == [(1, "m1", 2), (2, "m3", 2)]
    assert harness.wait(1).matured == 1


def test_a_delayed_message_is_not_ready_and_survives_a_restart(harness: Harness) -> None:
    """C14, Q7: no consumer and no session gets it, browse shows it, purge leaves it."""
    harness.declare_filled("q", 2)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=5000)
    harness.settle("x", Outcome.RELEASED, 2)
    harness.restart()
    assert harness.browse("q") == ["m1", "m2"]
    assert harness.do(c.PurgeQueue("q")) == 1
    reader = harness.open("q")
    assert reader.advance(0).end_tag == 0
    assert harness.wait(6) == c.Ticked(0, 0, 1)
    assert reader.advance(0).end_tag == 1


def test_transient_messages_vanish_from_a_delay(harness: Harness) -> None:
    """C14, Q7: no deadline is left of a message that vanished."""
    harness.declare("q")
    harness.publish_to("q", 2, persistent=False)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=5000)
    assert harness.restart() == 2
    assert views.next_due_us(harness.core.state) == 0


def test_a_delayed_message_counts_towards_the_length(harness: Harness) -> None:
    """Q3, C14: a delayed message is still in the queue; a requeue is never refused."""
    harness.declare_filled("q", 2, max_length=2)
    harness.deliver("x", "q")
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=5000)
    assert len(harness.publish_to("q", 1).nacks) == 1
    harness.settle("x", Outcome.ACCEPTED, 2)
    assert harness.publish_to("q", 1).nacks == ()


def test_a_delayed_message_goes_with_its_queue(harness: Harness) -> None:
    """Q4, C14: a delayed message has no holder, and the answer counts it."""
    harness.declare("q")
    block = harness.publish_to("q", 2).block_id
    harness.deliver("x", "q", 1)
    harness.settle("x", Outcome.RELEASED, 1, delay_ms=5000)
    assert harness.do(c.DeleteQueue("q")) == c.DeletedQueue(2, 0)
    assert harness.core.drain_dead_blocks() == [block]
    assert views.next_due_us(harness.core.state) == 0


def test_the_largest_settlement_is_a_small_record() -> None:
    """C13, Q6: one record of half a MiB rejects every other one of two million tags."""
    core, rows, count = Core(), 10_000, 2_000_000
    decide(core, c.Start("history"))
    decide(core, c.OpenPublisher(PUBLISHER))
    decide(core, c.DeclareQueue("d", c.QueueProperties()))
    decide(core, c.DeclareQueue("q", c.QueueProperties(dead_letter_queue="d")))
    for first in range(1, count, rows):
        numbers = BitMap64(range(first, first + rows))
        decide(
            core,
            c.Publish(PUBLISHER, numbers, first, "", True, (c.Route("q"),), rows, rows, True),
        )
    decide(core, c.Deliver(b"x", "q", count))
    scattered = BitMap64(range(1, count, 2))

    reply, sizes = decide(core, c.Settle(b"x", Outcome.REJECTED, scattered))

    assert reply == c.Settlement(count // 2, dead_lettered=count // 2)
    (size,) = sizes
    assert size < 600_000
    assert views.ready(core.state, "d") == count // 2
    reply, sizes = decide(core, c.Settle(b"x", Outcome.FAILED, up_to=count))
    assert (reply, sizes[0] < 300_000) == (c.Settlement(count // 2), True)


def decide(core: Core, command: c.Command) -> tuple[Any, list[int]]:
    """Decides and applies a command; returns its reply and the sizes of its records."""
    decision = core.decide(command, 1_700_000_000 * SECOND_US)
    for record in decision.records:
        core.apply(core.sequence + 1, record)
    return decision.reply, [len(records.encode(record)) for record in decision.records]
