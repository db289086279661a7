"""Rejections that are forwarded to the remote broker (L28, `on-reject`)."""

from typing import Any

import pytest
from pyroaring import BitMap

from ackq.errors import InvalidArgumentError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import records
from tests.unit.core.harness import Harness, group
from tests.unit.core.link_process import LinkProcess, expanded, settle

REJECTED, FAILED = Outcome.REJECTED, Outcome.FAILED
LIMIT = 2


def forwarding(harness: Harness, **properties: Any) -> LinkProcess:
    """A link with forwarded rejections, whose queue q has these properties."""
    harness.declare("dead")
    harness.declare("q", **properties)
    process = LinkProcess(harness, reject_there=True)
    process.subscribe()
    return process


@pytest.fixture
def there(harness: Harness) -> LinkProcess:
    """A link with forwarded rejections; its queue q has the dead-letter queue `dead`."""
    return forwarding(harness, dead_letter_queue="dead", delivery_limit=LIMIT)


def test_the_delivery_limit_rejects(there: LinkProcess) -> None:
    """C13, L28: one FAILED too many is a rejection; earlier ones, and RELEASED, requeue locally."""
    there.store(["a", "b"])
    for _ in range(LIMIT):
        settle(there.harness, FAILED, 1)
    settle(there.harness, Outcome.RELEASED, 2)
    assert there.outcomes() == ([], set())
    settle(there.harness, FAILED, 1)
    assert there.outcomes() == ([1], {1})
    assert dict(there.harness.info("q").dead_letters) == {"delivery_limit": 1}


def test_what_expires_stays_here(harness: Harness) -> None:
    """L9, L28: an expired message is a local dead letter, and no forwarded rejection."""
    process = forwarding(harness, dead_letter_queue="dead", message_ttl_ms=1_000)
    process.store(["a"])
    harness.wait(10)
    assert process.outcomes() == ([1], set())
    assert harness.ready("dead") == 1


def test_a_query_rejects_there(there: LinkProcess) -> None:
    """S6, L28: forwarded at the accept of its batch, which can be run again with the same rows."""
    harness = there.harness
    there.store(["a", "b"])
    reader = harness.lease("q", max_messages=2)
    reader.note()
    reader.say(group(REJECTED, 2, reason="no date"))
    assert there.outcomes() == ([], set())
    reader.advance(2)
    assert there.outcomes() == ([2, 1], {2})
    assert reader.fetch(0, 2) == ["a", "b"]
    assert harness.ready("dead") == 0


def test_an_operator_rejects_there(there: LinkProcess) -> None:
    """S8, L28: an operator's rejection is forwarded like a query's."""
    harness = there.harness
    there.store(["a", "b"])
    harness.lease("q", max_messages=2)
    reply = harness.do(c.SettleLease("s", REJECTED, ((2, 2),), "by hand"))
    assert (reply.settled, reply.dead_lettered, reply.dropped) == (1, 1, 0)
    assert there.outcomes() == ([2], {2})
    assert harness.ready("dead") == 0


def test_a_queue_without_dead_letters_has_the_built_in_one(harness: Harness) -> None:
    """L28: it keeps messages that the remote broker may no longer have, as they were permitted."""
    process = forwarding(harness)
    process.store(["early", "late"], at_once=BitMap((0,)))
    harness.publish_to("q", 1)
    settle(harness, REJECTED, 1, 2, 3)
    assert process.outcomes() == ([2], {2})
    assert harness.ready("ackq.dead") == 2


def test_what_may_be_acknowledged_is_a_dead_letter_here(there: LinkProcess) -> None:
    """L6, L10, L28: its acknowledgement may have been sent, until the message comes again."""
    harness = there.harness
    there.store(["a", "b", "c"], at_once=BitMap((0, 1, 2)))
    settle(harness, REJECTED, 1)
    there.subscribe()
    settle(harness, REJECTED, 2)
    assert harness.ready("dead") == 2
    assert not there.state().rejected
    assert there.matched(["c"], redelivered=True) == [True]
    settle(harness, REJECTED, 3)
    assert there.outcomes() == ([3], {3})


def test_numbers_that_come_again_are_answered_alike(there: LinkProcess) -> None:
    """L5, L28: a repeated frame is answered with the outcome."""
    there.store(["a", "b"])
    settle(there.harness, REJECTED, 2)
    there.permit()
    again = there.store(["a", "b"], first=1)
    assert [run[1:] for run in expanded(again)] == [(1, False, False), (2, False, True)]
    assert [run.rejected for run in again.runs] == [False, True]


def test_after_another_history_it_is_a_dead_letter_here(there: LinkProcess) -> None:
    """L27: the record of its permit may be missing; a redelivered message is rejected remotely."""
    harness = there.harness
    there.store(["a", "b"])
    harness.do(c.Start("other", "copied"))
    harness.do(c.AcceptHistory())
    settle(harness, REJECTED, 1)
    assert harness.ready("dead") == 1
    there.open()
    there.subscribe()
    assert there.matched(["b"]) == [True]
    settle(harness, REJECTED, 2)
    assert there.outcomes() == ([2], {2})


def test_the_option(there: LinkProcess) -> None:
    """I2, L9: it is on disk, off in records of older versions, and refused with `ack=stored`."""
    with pytest.raises(InvalidArgumentError, match="ack=settled, or on-reject=here"):
        LinkProcess(there.harness, "other", ack=c.LinkAck.STORED, reject_there=True)
    there.harness.restart()
    assert there.state().reject_there
    opened = records.LinkOpened("l", "i", 1, there.state().holder, "there", 1, "settled", 5)
    assert opened.reject_there is False
    assert records.decode(records.encode(opened)) == opened
    there.open(reject_there=False)
    assert not there.state().reject_there


def test_the_cost_is_by_the_record(there: LinkProcess) -> None:
    """I5: a rejection of many messages is one record with one bitmap of them."""
    there.store([str(number) for number in range(1_000)])
    settle(there.harness, REJECTED, *range(1, 1_001, 2))
    settled = [each for each in there.harness.log if isinstance(each, records.Settled)]
    (rejected,) = settled[-1].rejected_there
    assert (len(rejected.positions), rejected.cause) == (500, "rejected")
    told, to_reject = there.outcomes()
    assert told == [*range(1, 1_001, 2)]
    assert len(to_reject) == 500
