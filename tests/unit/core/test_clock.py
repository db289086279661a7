"""Q8: the broker's time is set back, and timers go on as if it had been right."""

import pytest

from ackq.outcomes import Outcome
from ackq_broker.core import Core
from ackq_broker.core import commands as c
from tests.unit.core.harness import DAY_US, SECOND_US, Harness

YEARS_US = 10 * 365 * DAY_US


def set_back(harness: Harness, by_us: int) -> int:
    """The clock is found to be so far ahead, and is set right; as after a restart."""
    right_us = harness.now_us - by_us
    done: int = harness.do(c.SetClock(right_us))
    assert harness.mirror.snapshot() == harness.core.snapshot()
    harness.core = Core.restore(harness.core.snapshot())
    harness.mirror = Core.restore(harness.core.snapshot())
    harness.now_us = right_us
    harness.do(c.Start("history"))
    return done


@pytest.fixture
def ahead(harness: Harness) -> Harness:
    """A broker with a message of before, whose clock is ten years ahead by now."""
    harness.declare_filled("old", 1)
    harness.now_us += YEARS_US
    return harness


def test_messages_expire_after_what_they_still_had(ahead: Harness) -> None:
    """Q3, Q8: with the TTL of their queue and with their own; not earlier, and not in ten years."""
    ahead.declare("q", message_ttl_ms=60_000)
    ahead.publish_to("q", 2)
    ahead.declare("own")
    ahead.publish_to("own", 1, ttls_ms=[60_000])
    ahead.wait(20)
    set_back(ahead, YEARS_US)
    ahead.wait(39)
    assert (ahead.ready("q"), ahead.ready("own")) == (2, 1)
    ahead.wait(2)
    assert (ahead.ready("q"), ahead.ready("own")) == (0, 0)
    assert ahead.ready("old") == 1


def test_staged_rows_expire_after_what_they_still_had(ahead: Harness) -> None:
    """K3, Q8: rows that become visible later came with their TTL before."""
    ahead.declare("q")
    ref = ahead.stage("w", 1, ["q"], name="s", ttls_ms=[60_000])
    set_back(ahead, YEARS_US)
    ahead.commit("w", 1, ref)
    ahead.wait(59)
    assert ahead.ready("q") == 1
    ahead.wait(3)
    assert ahead.ready("q") == 0


def test_a_delay_ends_after_what_was_left_of_it(ahead: Harness) -> None:
    """C14, Q8: a failed message comes back."""
    ahead.declare_filled("q", 1, redelivery_delay_ms=60_000)
    ahead.deliver("channel", "q")
    ahead.settle("channel", Outcome.FAILED, 1)
    ahead.wait(20)
    set_back(ahead, YEARS_US)
    ahead.wait(39)
    assert ahead.ready("q") == 0
    ahead.wait(2)
    assert ahead.ready("q") == 1


def test_ages_begin_now(ahead: Harness) -> None:
    """K6, Q8: what was published meanwhile is as old as the present, what came before as it is."""
    ahead.declare_filled("q", 1)
    published_us = ahead.info("old").oldest_us
    set_back(ahead, YEARS_US)
    assert ahead.now_us - ahead.info("q").oldest_us < SECOND_US
    assert ahead.info("old").oldest_us == published_us


def test_retention_counts_from_now(ahead: Harness) -> None:
    """P10, K2, K3, Q8: nothing is forgotten early, and nothing is kept for ten years."""
    reader = ahead.lease("old")
    reader.advance(1)
    ahead.declare("q")
    ahead.stage("w", 1, ["q"], name="s")
    ahead.do(c.OpenPublisher(b"2" * 16))
    ahead.do(c.ClosePublisherStream(b"2" * 16))
    set_back(ahead, YEARS_US)
    ahead.housekeep_after(6 * DAY_US)
    (session,) = ahead.core.sessions()
    assert session.floor_tag == 1
    assert len(ahead.core.batches(10)) == 1
    assert ahead.do(c.OpenPublisher(b"2" * 16, resume=True)) == 1
    ahead.do(c.ClosePublisherStream(b"2" * 16))
    ahead.housekeep_after(2 * DAY_US)
    assert ahead.core.batches(10) == []


def test_a_clock_that_is_not_ahead_changes_nothing(harness: Harness) -> None:
    """Q8: the broker's time does not run backwards otherwise."""
    harness.declare_filled("q", 1, message_ttl_ms=60_000)
    before = harness.core.snapshot()
    decision = harness.decide(c.SetClock(harness.now_us + 5))
    assert (decision.reply, decision.records) == (0, ())
    assert harness.core.snapshot() == before


def test_what_was_published_by_many_and_is_removed(ahead: Harness) -> None:
    """I2, Q8: pages of messages that a snapshot shares stay as they were in it."""
    ahead.declare("q", message_ttl_ms=3_600_000)
    for _ in range(40):
        ahead.publish_to("q", 3)
    ahead.deliver("channel", "q", 5)
    set_back(ahead, YEARS_US)
    ahead.publish_to("q", 3)
    assert ahead.ready("q") + ahead.unacked("q") == 123
