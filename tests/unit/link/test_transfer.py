"""One subscription of an inbound link, between a recording remote and local broker."""

import asyncio

import pyarrow as pa
import pytest

from ackq.client.ranges import Range
from ackq.errors import PreconditionFailedError
from ackq.limits import MAX_MESSAGE_BYTES
from ackq_link import transfer
from ackq_link.adapter import Deliveries, Positions, QueueLimits, Remaining
from ackq_link.edge.deliveries import Permits, Proof, StoredDeliveries, StoredRun
from ackq_link.hold_policy import HoldPolicy, HoldRules, OnMaxHold, OnReject
from ackq_link.keys import KeyRule
from ackq_link.process import StoppedError
from ackq_link.transfer import GivenBackError, InboundCounters, Transfer
from tests.fakes.clock import LoopTime, run

RUN = run


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    """Lets the age of deliveries follow the time of the loop."""
    monkeypatch.setattr(transfer, "time", LoopTime())


class Subscription:
    """A remote subscription that gives prepared deliveries and records settlements."""

    def __init__(self):
        self.coming = asyncio.Queue()
        self.settled = []
        self.rejected = []
        self.aside = []
        self.proven = 0
        self.window_messages = 10
        self.left = None
        self.last_tag = 0

    def bring(self, *bodies, redelivered=False, counts=(), **more):
        rows = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        flags = [redelivered] * len(bodies)
        taken = Deliveries(rows, self.last_tag + 1, flags, 1, counts, **more)
        self.coming.put_nowait(taken)
        self.last_tag += len(bodies)

    async def deliver(self):
        return await self.coming.get()

    def settle(self, first, last):
        self.settled.append((first, last))

    def reject(self, first, last):
        self.rejected.append((first, last))

    def set_aside(self, tag):
        self.aside.append(tag)

    async def remaining(self):
        return self.left


class Edge:
    """The open link to the local broker: stores at once, permits on request."""

    def __init__(self):
        self.paused, self.connected, self.refusal, self.outage = False, True, None, None
        self.queue, self.subscription = "q", 0
        self.held = 1 << 30
        self.missing = 0
        self.stored = []
        self.keys = set()
        self.reports = []
        self._permits = asyncio.Queue()
        self._changed = asyncio.Event()

    async def subscribe(self, proof):
        self.proof = proof
        self.subscription += 1
        return self.subscription

    async def store(self, first, rows, *, keys, checks, content, redelivered, at_once):
        assert len(keys) == 2 * len(checks) == 16 * rows.num_rows
        self.stored.append((first, rows.num_rows, content, redelivered, at_once))
        self.keys.add(keys + checks)
        return StoredDeliveries((StoredRun(first, rows.num_rows, 1, False, False),))

    def permit(self, *ranges, subscription=None, rejected=()):
        ranges = [Range(*each) for each in ranges]
        self._permits.put_nowait(Permits(subscription or self.subscription, ranges, rejected))

    async def permits(self):
        return await self._permits.get()

    async def refresh(self):
        pass

    def change(self, **values):
        vars(self).update(values)
        self._changed.set()

    async def changed(self):
        await self._changed.wait()
        self._changed.clear()

    def report(self, report):
        self.reports.append(report)


class Running:
    """A running transfer between a `Subscription` and an `Edge`, in virtual time."""

    def __init__(self, early=0, limits=None, *, on_reject="here", **rules):
        self.source, self.edge, self.counters = Subscription(), Edge(), InboundCounters()
        self.holding = HoldPolicy(HoldRules(**rules))
        self.holding.limits = limits or QueueLimits()
        self.transfer = Transfer(
            "link",
            self.edge,
            self.source,
            KeyRule(),
            self.holding,
            self.counters,
            early,
            on_reject=OnReject(on_reject),
        )
        self.task = asyncio.create_task(self.transfer.run(asyncio.Event()))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def until(self, ready):
        while not ready():
            assert not self.task.done(), self.task.exception()
            await asyncio.sleep(0.001)


async def test_missing_messages_are_logged_once(caplog):
    """L18: logged once two looks found no other consumer, the first also an empty queue."""

    async def looks(running, *found):
        for running.source.left in found:
            await asyncio.sleep(transfer._LOOK_S)

    def logged():
        return [each.fields for each in caplog.records if each.event == "link_vanished"]

    async with Running() as running:
        running.edge.missing = 4
        running.source.bring(b"a", redelivered=True)
        await running.until(lambda: running.counters.stored == 1)
        await looks(running, None, Remaining(0, 2, 1), Remaining(0, 0, 1), Remaining(3, 1, 1))
        await looks(running, Remaining(0, 1, 2))
        assert logged() == []  # delivery 2 came before the second look, and is not stored yet
        running.source.bring(b"b", redelivered=True)
        await running.until(logged)
        await looks(running, Remaining(0, 1, 2))
        assert logged() == [{"link": "link", "queue": "q", "messages": 4}]


@pytest.mark.parametrize("marked", [True, False])
async def test_what_was_given_back_is_stored_for_good(marked):
    """L15: it is permitted at once, where the remote broker does not mark it by its number."""
    async with Running(early=2) as running:
        for bodies in ([b"a"], [b"b", b"c"]):
            running.source.bring(*bodies, redelivered=marked, unmarked=not marked)
        await running.until(lambda: running.counters.stored == 3)
        early = [at_once for *_, at_once in running.edge.stored]
        assert early == [[True], [True, marked]]


async def test_keys_are_of_what_lasts():
    """L3: what another delivery of a message changes is stored, and is not in its key."""
    async with Running() as running:
        for body in (b"a", b"b"):
            running.source.bring(body, lasting=pa.record_batch({"body": [b"same"]}))
        await running.until(lambda: running.counters.stored == 2)
        assert len(running.edge.keys) == 1


@pytest.mark.parametrize(("key", "marked"), [("position", True), ("message_id", False)])
async def test_what_comes_before_late_redeliveries_is_not_fresh(key, marked):
    """L10, L30: it is marked as redelivered, which decides nothing else where keys are positions;
    not by ids, as a publisher's repetition would be a cut (L6). No more is stored for good (L15).
    """
    async with Running(early=1) as running:
        running.transfer._key = KeyRule(key)
        positions = Positions(bytes(16), bytes(8))
        running.source.bring(b"a", unsettled=True, positions=positions)
        running.source.bring(b"b", positions=positions)
        await running.until(lambda: running.counters.stored == 2)
        assert [each[3:] for each in running.edge.stored] == [([marked], [False]), ([False],) * 2]


async def test_a_stop_before_the_edge_has_answered():
    """L9, L20: a stop ends a link whose edge went away before its subscription began."""
    running, stop = Running(), asyncio.Event()
    running.task.cancel()
    running.edge.subscribe = lambda _: asyncio.Event().wait()
    stop.set()
    with pytest.raises(StoppedError):
        await running.transfer.run(stop)


async def test_an_edge_that_goes_before_it_has_answered():
    """L15, L16, L20: what the remote broker has delivered meanwhile is held for max-hold."""
    async with Running(max_hold_s=60) as running:
        running.edge.subscribe = lambda _: asyncio.Event().wait()
        for change in ({"held": 1}, {"connected": False}):
            running.edge.change(**change)
            await asyncio.sleep(29.5)
            assert not running.task.done()
        with pytest.raises(GivenBackError) as raised:
            await asyncio.wait_for(running.task, 2 * transfer._LOOK_S)
        assert raised.value.action is None


async def test_what_came_before_the_edge_has_answered_is_held_since_then():
    """L15: what comes later is held since it came."""
    begun = asyncio.Event()
    async with Running(max_hold_s=60) as running:
        running.edge.subscribe = lambda _: begun.wait()
        running.source.bring(b"a")
        await asyncio.sleep(40)
        begun.set()
        await running.until(lambda: running.counters.stored == 1)
        await asyncio.sleep(10)
        running.source.bring(b"b")
        await running.until(lambda: running.counters.stored == 2)
        running.edge.permit((1, 1))
        await asyncio.sleep(40)
        assert not running.task.done()
    async with Running(max_hold_s=60) as running:
        running.edge.subscribe = lambda _: begun.wait()
        begun.clear()
        running.source.bring(b"a")
        await asyncio.sleep(40)
        begun.set()
        with pytest.raises(GivenBackError):
            await asyncio.wait_for(running.task, 25)


async def test_a_pause():
    """L25: no more messages are taken; once all are acknowledged the rest is requeued."""
    async with Running() as running:
        running.source.bring(b"a")
        await running.until(lambda: running.counters.stored == 1)
        await running.until(lambda: running.transfer.limited_by == "broker")
        running.edge.change(paused=True)
        running.source.bring(b"b")
        await running.until(running.source.coming.empty)
        running.edge.permit((1, 1))
        await running.until(lambda: running.counters.settled == 1)
        assert running.counters.taken == 1
        with pytest.raises(GivenBackError) as raised:
            await running.task
        assert raised.value.action is None


@pytest.mark.parametrize("action", OnMaxHold)
async def test_held_too_long(action):
    """L15: the error names held messages and action; `fail` ends the link and names `ackq why`."""
    async with Running(max_hold_s=60, on_max_hold=action) as running:
        began = asyncio.get_running_loop().time()
        running.source.bring(b"a", b"b")
        if action is OnMaxHold.FAIL:
            with pytest.raises(PreconditionFailedError, match="ackq why"):
                await running.task
            return
        with pytest.raises(GivenBackError) as raised:
            await running.task
        assert asyncio.get_running_loop().time() - began >= 60
        assert (raised.value.action, raised.value.held) == (action, 2)
        assert running.counters.renewals == 1


@pytest.mark.parametrize("on_reject", ["there", "here"])
async def test_a_remote_queue_that_loses_its_dead_letter_exchange(on_reject, caplog):
    """L28: nothing is rejected there, nor settled behind it, until the queue has one again."""
    kept, lost = QueueLimits(dead_letters=True), QueueLimits(dead_letters=False)
    async with Running(limits=kept, on_reject=on_reject) as running:
        running.source.bring(b"a", b"b", b"c")
        await running.until(lambda: running.counters.stored == 3)
        running.holding.limits = lost
        running.edge.permit((1, 1), (2, 2), (3, 3), rejected=[False, True, False])
        await asyncio.sleep(10 * transfer._LOOK_S)
        assert (running.source.settled, running.source.rejected) == ([(1, 1)], [])
        (told,) = [each.message for each in caplog.records if each.event == "link_rejections"]
        assert "on-reject=discard" in told
        running.holding.limits = kept
        await running.until(lambda: running.counters.settled == 3)
        assert (running.source.settled, running.source.rejected) == ([(1, 1), (3, 3)], [(2, 2)])


LARGE = b"x" * MAX_MESSAGE_BYTES


@pytest.mark.parametrize("rejects", [True, False])
async def test_what_the_edge_cannot_take_is_set_aside(rejects):
    """L29: unfit messages are rejected or left, by the limits of now; others are stored."""
    async with Running(limits=QueueLimits(dead_letters=not rejects)) as running:
        running.holding.limits = QueueLimits(dead_letters=rejects)
        running.source.bring(b"a", LARGE, b"b")
        running.source.bring(LARGE)
        running.source.bring(b"c")
        await running.until(lambda: running.counters.stored == 3)
        assert [stored[:2] for stored in running.edge.stored] == [(1, 1), (2, 1), (3, 1)]
        assert running.source.rejected == ([(2, 2), (4, 4)] if rejects else [])
        assert running.source.aside == ([] if rejects else [2, 4])
        running.edge.permit((1, 3))
        await running.until(lambda: running.counters.settled == 3)
        assert running.source.settled == [(1, 1), (3, 3), (5, 5)]
        running.source.proven = 4 if rejects else 2
        running.edge.change()
        await running.until(lambda: running.edge.proof() == Proof(2, 2))
        await running.until(lambda: running.edge.reports)
        report = running.edge.reports[-1]
        assert (report.set_aside, report.window_messages) == (2, 10)
        assert "67108864" in report.set_aside_reason
