"""An inbound link's looks at its remote queue, and its ends and cuts, in virtual time."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from ackq.errors import NotFoundError
from ackq_link import inbound
from ackq_link.adapter import CutError, Limits, QueueLimits
from ackq_link.hold_policy import HoldPolicy, HoldRules, OnMaxHold
from ackq_link.inbound import _LEARN_S, Inbound, InboundRules
from ackq_link.process import StoppedError
from ackq_link.transfer import GivenBackError, Transfer
from tests.fakes.clock import run

RUN = run


def link_of(*looks, **rules):
    """A link of a remote queue, of which each look has a result: limits, or an error."""
    given = {"identity": "amqp://h:5672/%2F, queue q", "limits": Limits(10, 1 << 20)}
    source = SimpleNamespace(**given, learn=AsyncMock(side_effect=looks))
    return Inbound("link", source, None, InboundRules(**rules))


async def after_each(limits, *looks, **rules):
    """What a running link that knew these limits knows after each look."""
    holding, found = HoldPolicy(HoldRules()), []
    holding.limits = limits
    task = asyncio.create_task(link_of(*looks, **rules)._keep_learning(holding))
    await asyncio.sleep(_LEARN_S / 2)
    for _ in looks:
        await asyncio.sleep(_LEARN_S)
        assert not task.done(), task.exception()
        found.append(holding.limits)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


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
    assert await after_each(*looks) == learnt


async def test_a_look_that_fails_is_logged_once(caplog):
    """L14: with its reason, as only the look may meet it; again after one that did not fail."""
    limits = QueueLimits()
    away, auto_delete = CutError("API away"), CutError("is an auto-delete queue", REFUSAL)
    looks = [away, away, auto_delete, auto_delete, limits, auto_delete]
    await after_each(limits, *looks)
    told = [each.getMessage().rpartition(": ")[2] for each in caplog.records]
    assert told == [each.reason for each in (away, auto_delete, auto_delete)]


@pytest.mark.parametrize("ack", ["settled", "stored"])
async def test_a_queue_that_comes_to_drop_held_messages(caplog, ack):
    """L14: a link that would refuse it at its start warns, once."""
    kept = QueueLimits(delivery_limit=5, dead_letters=True, remedy="set_policy")
    lost = replace(kept, dead_letters=False)
    await after_each(kept, lost, lost, ack=ack)
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
    ready = SimpleNamespace(paused=False, connected=True, report=lambda _: None)
    with pytest.raises(StoppedError if waits else NotFoundError):
        await link._run(ready, HoldPolicy(HoldRules()), served.stop)
    assert not served.ends


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (AWAY, ["connection"]),
        (GivenBackError(OnMaxHold.RENEW, 1), ["connection"]),
        (GivenBackError(None, 0), []),
    ],
    ids=["cut", "renewed", "nothing left"],
)
async def test_operators_see_that_nothing_is_acknowledged(monkeypatch, end, told):
    """L25, L26: before the first connection, and after one that ended with messages in hand."""
    reports, stop = [], asyncio.Event()
    edge = SimpleNamespace(paused=False, connected=True, report=reports.append)
    edge.changed = asyncio.Event().wait

    async def ended(transfer, _stop):
        transfer.begun = True
        assert [each.limited_by for each in reports] == ["connection"]
        reports.clear()
        edge.paused = True
        stop.set()
        raise end

    monkeypatch.setattr(Transfer, "run", ended)
    link = link_of()
    link.source.subscribe = AsyncMock()
    with pytest.raises(StoppedError):
        await link._run(edge, HoldPolicy(HoldRules()), stop)
    assert [each.limited_by for each in reports] == told


async def test_a_give_back_before_the_subscription_began(monkeypatch):
    """L15: what was given back before is still acknowledged as soon as it is matched."""

    async def gone(_transfer, _stop):
        raise GivenBackError(None, 0)

    monkeypatch.setattr(Transfer, "run", gone)
    link, subscription, holding = link_of(), AsyncMock(), HoldPolicy(HoldRules())
    assert await link._transfer(Mock(), holding, subscription, 5, asyncio.Event()) == 5
    subscription.close.assert_awaited_once_with(requeue=True)
