"""An inbound link's looks at its remote queue, and its ends and cuts, in virtual time."""

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock, Mock

import pytest

from ackq.errors import NotFoundError
from ackq_link import inbound
from ackq_link.adapter import CutError, Limits, QueueLimits
from ackq_link.hold_policy import HoldPolicy, HoldRules
from ackq_link.inbound import _LEARN_S, Inbound, InboundRules
from ackq_link.process import StoppedError
from ackq_link.transfer import GivenBackError, Transfer
from tests.fakes.clock import run

RUN = run


class Source:
    """A remote queue whose looks have prepared results: limits, or an error."""

    identity, limits = "amqp://h:5672/%2F, queue q", Limits(10, 1 << 20)

    def __init__(self, *looks):
        self.looks = [*looks]

    async def learn(self):
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


class Learning:
    """A running link's looks; `learnt` has the limits after each."""

    def __init__(self, limits, *looks, **rules):
        self.source = Source(*looks)
        self.link = Inbound("link", self.source, None, InboundRules(**rules))
        self.holding = HoldPolicy(HoldRules())
        self.holding.limits = limits
        self.learnt = []

    async def dead_letters(self):
        await self.run()
        return [each.dead_letters for each in self.learnt]

    async def run(self):
        looks = len(self.source.looks)
        task = asyncio.create_task(self.link._keep_learning(self.holding))
        await asyncio.sleep(_LEARN_S / 2)
        for _ in range(looks):
            await asyncio.sleep(_LEARN_S)
            assert not task.done(), task.exception()
            self.learnt.append(self.holding.limits)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_look_that_does_not_say_leaves_dead_letters_lost():
    """L28: a queue known to drop dead letters does so until a look says that it keeps them."""
    kept, lost, unknown = (QueueLimits(dead_letters=each) for each in (True, False, None))
    learning = Learning(kept, lost, unknown, CutError("away"), kept, unknown)
    assert await learning.dead_letters() == [False, False, False, True, None]


async def test_a_look_that_tells_a_part_changes_nothing():
    """L14: what an earlier look told holds, as while a new leader has no statistics."""
    whole = QueueLimits("quorum", consumer_timeout_s=300, delivery_limit=5, dead_letters=True)
    part = QueueLimits("quorum", delivery_limit=20, warnings=("no policy",), partial=True)
    learning = Learning(whole, part, whole)
    await learning.run()
    assert learning.learnt == [replace(whole, warnings=("no policy",)), whole]
    learning = Learning(part, whole, part)
    await learning.run()
    assert learning.learnt == [whole, replace(whole, warnings=("no policy",))]
    nothing = QueueLimits(delivery_limit=20, warnings=("refused",), partial=True)
    more = QueueLimits("quorum", consumer_timeout_s=60, dead_letters=False, partial=True)
    learning = Learning(part, nothing, more)
    await learning.run()
    assert learning.learnt == [
        replace(part, warnings=("refused",)),
        replace(more, delivery_limit=20),
    ]


async def test_a_part_that_says_that_dead_letters_are_dropped():
    """L28: it is believed, whatever a whole look said before."""
    whole, part = QueueLimits("quorum", dead_letters=True), QueueLimits("quorum", partial=True)
    learning = Learning(whole, replace(part, dead_letters=False), part)
    assert await learning.dead_letters() == [False, False]


async def test_a_look_that_fails_is_logged_once(caplog):
    """L14: with its reason, as only the look may meet it; again after one that did not fail."""
    limits = QueueLimits()
    away, auto_delete = CutError("API away"), CutError("is an auto-delete queue", REFUSAL)
    looks = [away, away, auto_delete, auto_delete, limits, auto_delete]
    await Learning(limits, *looks).dead_letters()
    told = [each.getMessage().rpartition(": ")[2] for each in caplog.records]
    assert told == [each.reason for each in (away, auto_delete, auto_delete)]


@pytest.mark.parametrize("ack", ["settled", "stored"])
async def test_a_queue_that_comes_to_drop_held_messages(caplog, ack):
    """L14: a link that would refuse it at its start warns, once."""
    kept = QueueLimits(delivery_limit=5, dead_letters=True, remedy="set_policy")
    lost = replace(kept, dead_letters=False)
    await Learning(kept, lost, lost, ack=ack).dead_letters()
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == (ack == "settled")
    for each in warnings:
        assert "drops a message at its delivery 6" in each.getMessage()


REFUSAL = NotFoundError("no queue")
AWAY, REFUSED = CutError("away"), CutError("no queue", REFUSAL)


class Served:
    """Subscriptions of which each is refused, or settles a number of messages, and is cut."""

    def __init__(self, *ends):
        self.ends = [*ends]
        self.stop = asyncio.Event()

    async def subscribe(self):
        if not self.ends:
            self.stop.set()
            await asyncio.Event().wait()
        if isinstance(self.ends[0], CutError):
            raise self.ends.pop(0)
        return self

    def transfer(self, *arguments, **_):
        self.counters = arguments[5]
        return self

    async def run(self, _stop):
        settled, cut = self.ends.pop(0)
        self.counters.settled += settled
        raise cut

    async def close(self, *, requeue):
        assert not requeue


class ReadyEdge:
    paused, connected = False, True


@pytest.mark.parametrize(
    ("ends", "waits"),
    [
        ([REFUSED], False),
        ([AWAY, REFUSED], False),
        ([(1, REFUSED)], False),
        ([(0, AWAY), (1, REFUSED)], False),
        ([(0, AWAY), REFUSED], True),
        ([(1, AWAY), REFUSED], True),
        ([(1, AWAY), (1, REFUSED)], True),
    ],
)
async def test_a_refusal_ends_the_link_before_it_has_worked(monkeypatch, ends, waits):
    """L17: at its start, or at its first acknowledgement; a later one is waited for.

    By AMQP 0-9-1 a link may settle a window without a proof, however long it takes.
    """
    served = Served(*ends)
    monkeypatch.setattr(inbound, "Transfer", served.transfer)
    link = Inbound("link", served, None)
    with pytest.raises(StoppedError if waits else NotFoundError):
        await link._run(ReadyEdge(), HoldPolicy(HoldRules()), served.stop)
    assert not served.ends


async def test_a_give_back_before_the_subscription_began(monkeypatch):
    """L15: what was given back before is still acknowledged as soon as it is matched."""

    async def gone(_transfer, _stop):
        raise GivenBackError(None, 0)

    monkeypatch.setattr(Transfer, "run", gone)
    link = Inbound("link", Source(), None, InboundRules())
    subscription = AsyncMock()
    holding = HoldPolicy(HoldRules())
    assert await link._transfer(Mock(), holding, subscription, 5, asyncio.Event()) == 5
    subscription.close.assert_awaited_once_with(requeue=True)
