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
        return self.learnt


KEPT, LOST, UNKNOWN = (QueueLimits(dead_letters=each) for each in (True, False, None))
WHOLE = QueueLimits("quorum", consumer_timeout_s=300, delivery_limit=5, dead_letters=True)
PART = QueueLimits("quorum", delivery_limit=20, warnings=("no policy",), partial=True)
WARNED = replace(WHOLE, warnings=("no policy",))
NOTHING = QueueLimits(delivery_limit=20, warnings=("refused",), partial=True)
MORE = QueueLimits("quorum", consumer_timeout_s=60, dead_letters=False, partial=True)


@pytest.mark.parametrize(
    ("looks", "learnt"),
    [
        # L28: a queue known to drop dead letters does so until a look says that it keeps them.
        ([KEPT, LOST, UNKNOWN, CutError("away"), KEPT, UNKNOWN], [LOST, LOST, LOST, KEPT, UNKNOWN]),
        # L14: what an earlier look told holds, as while a new leader has no statistics.
        ([WHOLE, PART, WHOLE], [WARNED, WHOLE]),
        ([PART, WHOLE, PART], [WHOLE, WARNED]),
        (
            [PART, NOTHING, MORE],
            [replace(PART, warnings=("refused",)), replace(MORE, delivery_limit=20)],
        ),
        # L28: a part that says that dead letters are dropped is believed.
        ([KEPT, replace(LOST, partial=True), replace(UNKNOWN, partial=True)], [LOST, LOST]),
    ],
)
async def test_what_looks_tell(looks, learnt):
    """L14, L28: of looks that fail, or tell only a part, beside what is known."""
    assert await Learning(*looks).run() == learnt


async def test_a_look_that_fails_is_logged_once(caplog):
    """L14: with its reason, as only the look may meet it; again after one that did not fail."""
    limits = QueueLimits()
    away, auto_delete = CutError("API away"), CutError("is an auto-delete queue", REFUSAL)
    looks = [away, away, auto_delete, auto_delete, limits, auto_delete]
    await Learning(limits, *looks).run()
    told = [each.getMessage().rpartition(": ")[2] for each in caplog.records]
    assert told == [each.reason for each in (away, auto_delete, auto_delete)]


@pytest.mark.parametrize("ack", ["settled", "stored"])
async def test_a_queue_that_comes_to_drop_held_messages(caplog, ack):
    """L14: a link that would refuse it at its start warns, once."""
    kept = QueueLimits(delivery_limit=5, dead_letters=True, remedy="set_policy")
    lost = replace(kept, dead_letters=False)
    await Learning(kept, lost, lost, ack=ack).run()
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
