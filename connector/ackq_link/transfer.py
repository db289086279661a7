"""A subscription of an inbound link: from deliveries to acknowledgements. Rules L9, L15, L26, L28.

Invariant: a delivery is acknowledged or rejected at the remote broker only when the edge permits
it, and only in this module: `permits` returns, then `settle` or `reject` is called. A message that
the edge cannot take is rejected only where the remote broker keeps rejected messages, or where the
user allows it to drop them (L29).
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ackq.client.ranges import Ranges
from ackq.errors import AckqError, ClosedError, PreconditionFailedError
from ackq.text import printable
from ackq.v1 import links_pb2
from ackq_link.adapter import CutError, Deliveries, SourceSubscription
from ackq_link.edge import AsyncLink, Proof
from ackq_link.hold_policy import HoldPolicy, OnMaxHold, OnReject, loses_rejected, rejects_unfit
from ackq_link.keys import KeyRule
from ackq_link.process import STOP_GRACE_S, StoppedError, log, unless
from ackq_link.set_aside import SetAside, Settlements, unfit

# Most batches in flight to the edge.
_BATCHES: Final = 16
# While a batch is in flight the next one gathers: a frame costs as much as dozens of rows.
_GATHER_S: Final = 0.025
_LAST_PERMITS_S: Final = 2.0
_LOOK_S: Final = 1.0
_REPORT_S: Final = 60.0
# From this fill level on, the window is what limits the link.
_FULL: Final = 0.9


class GivenBackError(Exception):
    """The subscription is to be closed, and the deliveries that it holds given back.

    Args:
        action: The action for deliveries held too long; None: the link is paused and has nothing to
            acknowledge, or the edge went before it had taken any.
        held: The number of held deliveries.
    """

    def __init__(self, action: OnMaxHold | None, held: int) -> None:
        super().__init__(action, held)
        self.action = action
        self.held = held


@dataclass
class InboundCounters:
    """Counters of an inbound link; each only grows.

    Attributes:
        taken: Deliveries sent to the edge.
        stored: Of these, deliveries that the edge stored or matched.
        matched: Of these, deliveries whose message the edge already had.
        redelivered: Deliveries that the remote broker marked redelivered.
        settled: Deliveries acknowledged or rejected at the remote broker.
        rejected: Of these, rejected (L28).
        proven: Whether any of these was proven to have arrived (L10).
        early: Deliveries sent with the flag to permit them as soon as they are stored (L15, L16).
        without_id: Deliveries keyed by their content although ids were configured (L2).
        renewals: Subscriptions that were given back because of their age (L15).
        cuts: Subscriptions that a cut ended.
        set_aside: Deliveries that the edge cannot take, counted at each delivery (L29).
        set_aside_reason: Why the edge cannot take the last of them.
    """

    taken: int = 0
    stored: int = 0
    matched: int = 0
    redelivered: int = 0
    settled: int = 0
    rejected: int = 0
    proven: bool = False
    early: int = 0
    without_id: int = 0
    renewals: int = 0
    cuts: int = 0
    set_aside: int = 0
    set_aside_reason: str = ""

    def report(self, limited_by: str) -> links_pb2.LinkReport:
        """A report to the edge (L26) with what limits the link now."""
        return links_pb2.LinkReport(
            reconnects=self.cuts,
            renewals=self.renewals,
            limited_by=limited_by,
            set_aside=self.set_aside,
            set_aside_reason=self.set_aside_reason,
        )


class Transfer:
    """Moves the deliveries of one subscription to the edge, and settles what the edge permits.

    Args:
        name: The link's name.
        edge: The open link at the edge.
        subscription: The subscription at the remote broker.
        key: The rule for the origin keys of messages.
        holding: The policy for how long deliveries are held.
        counters: The link's counters.
        early: The number of redelivered messages to acknowledge as soon as they are matched (L15).
        on_reject: Where rejected messages go: with the limits that were learnt last it decides what
            may be rejected at the remote broker (L28, L29).

    Attributes:
        begun: Whether the edge has begun the subscription.
    """

    def __init__(
        self,
        name: str,
        edge: AsyncLink,
        subscription: SourceSubscription,
        key: KeyRule,
        holding: HoldPolicy,
        counters: InboundCounters,
        early: int = 0,
        *,
        on_reject: OnReject = OnReject.HERE,
    ) -> None:
        self._name = name
        self._edge = edge
        self._subscription = subscription
        self._key = key
        self._holding = holding
        self._counters = counters
        self._early = early
        self.begun = False
        self._on_reject = on_reject
        self._aside = SetAside()
        self._settlements = Settlements()
        self._number = self._stored_number = 0  # of the last delivery taken, of the last stored
        self._proof = Proof()
        self._acknowledged = asyncio.Event()
        self._held = Ranges()
        self._held_count = 0
        self._unsent = 0  # of these, deliveries that a pause keeps from the edge
        self._batch_firsts: list[int] = []
        self._batch_times: list[float] = []
        # The last tag that came before the edge began the subscription, and the earliest time.
        self._came_until, self._came_at = 0, 0.0
        self._room = asyncio.Semaphore(_BATCHES)
        self._gate = asyncio.Event()
        self._stores: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._paused_at: float | None = None
        self._receiving = False
        self._turnaround_s = 0.0
        self._report_at = time.monotonic() + _REPORT_S

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the transfer until a cut, a renewal, a stop or a failure; always ends by an error.

        Raises:
            CutError: The subscription ended.
            GivenBackError: The subscription is to be closed.
            StoppedError: A stop was requested; the batches in flight to the edge were answered, or
                the grace period is over.
            AckqError: The edge ended the link, or a delivery was held too long (`fail`).
        """
        await unless(stop, self._begin())
        self.begun = True
        self._holding.subscribed()
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._take(),
                self._acknowledge(),
                self._watch(),
                self._miss(),
                _stopped(stop),
            )
        ]
        ends: list[asyncio.Future[Any]] = [*tasks, self._failed]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                if each.done():
                    if isinstance(each.exception(), StoppedError):
                        await self._finish(tasks[0])
                    each.result()
        except ClosedError as error:
            # The edge lost its state of this subscription (L27), or it repeats deliveries (L6).
            raise CutError(f"the local broker: {error.message}") from error
        finally:
            self._failed.cancel()
            for task in (*tasks, *self._stores):
                task.cancel()
            await asyncio.gather(*tasks, *self._stores, return_exceptions=True)

    async def _begin(self) -> None:
        """Begins the subscription at the edge.

        Raises:
            GivenBackError: The edge has gone, and what has come may be held no longer (L15, L20).
        """
        self._came_at = time.monotonic()
        until = self._came_at + self._holding.max_hold_s
        subscribing = asyncio.ensure_future(self._edge.subscribe(lambda: self._proof))
        try:
            while not subscribing.done():
                if not self._edge.connected and time.monotonic() >= until:
                    raise GivenBackError(None, 0)
                await asyncio.wait((subscribing,), timeout=_LOOK_S)
            subscribing.result()
            self._came_until = self._subscription.last_tag
        finally:
            subscribing.cancel()
            await asyncio.gather(subscribing, return_exceptions=True)

    # --- taking ---

    async def _take(self) -> None:
        """Takes deliveries and sends them to the edge, with several batches in flight."""
        while True:
            await self._room.acquire()
            if self._stores:
                await asyncio.sleep(_GATHER_S)
            await self._unpaused()
            self._receiving = True
            deliveries = await self._subscription.deliver()
            self._receiving = False
            refused = unfit(deliveries.rows)
            parts = [*self._aside.parts(deliveries, refused)]
            for row, reason in refused.items():
                self._set_aside(deliveries.first_tag + row, reason)
            for part in parts:
                self._note(part)
            self._unsent = sum(part.rows.num_rows for part in parts)
            await self._unpaused()
            self._unsent = 0
            for part in parts:
                task = asyncio.create_task(self._store(part))
                self._stores.add(task)
                task.add_done_callback(self._stored)
            if parts:
                task.add_done_callback(lambda _: self._room.release())
            else:
                self._room.release()

    def _set_aside(self, tag: int, reason: str) -> None:
        """Rejects a delivery that the edge cannot take, or leaves it unacknowledged (L29)."""
        self._counters.set_aside += 1
        self._counters.set_aside_reason = reason
        if rejects_unfit(self._on_reject, self._holding.limits):
            self._subscription.reject(tag, tag)
            self._settlements.other()
            became = "It is rejected at the remote broker"
        else:
            self._subscription.set_aside(tag)
            became = (
                "It stays unacknowledged at the remote broker, which delivers it again at each"
                " connection. Remove it from the remote queue; or give that queue a dead-letter"
                " exchange, or the link on-reject=discard, and it is rejected"
            )
        log(
            logging.WARNING,
            self._name,
            "set_aside",
            f"the local broker cannot take a message: {reason}. {became}",
            tag=tag,
            reason=reason,
        )

    async def _unpaused(self) -> None:
        while self._edge.paused:
            self._gate.clear()
            await self._gate.wait()

    def _note(self, deliveries: Deliveries) -> None:
        rows = deliveries.rows.num_rows
        assert deliveries.first_tag == self._number + 1, "tags are numbers"
        self._number = deliveries.last_tag
        self._held.extend(deliveries.first_tag, deliveries.last_tag)
        self._held_count += rows
        self._batch_firsts.append(deliveries.first_tag)
        early = deliveries.first_tag <= self._came_until
        self._batch_times.append(self._came_at if early else time.monotonic())
        self._holding.saw(deliveries.delivery_counts)
        self._counters.redelivered += sum(deliveries.redelivered)
        self._note_proven()

    def _note_proven(self) -> None:
        """Updates the proof: the number of permits proven to be settled, and the last one (L10)."""
        self._proof = self._settlements.proof(self._subscription.proven)
        self._counters.proven = self._counters.proven or self._subscription.proven > 0

    async def _store(self, deliveries: Deliveries) -> None:
        rows = deliveries.rows
        lasting = rows if deliveries.lasting is None else deliveries.lasting
        found = self._key.of(lasting, deliveries.positions)
        at_once = self._at_once(deliveries)
        marks = deliveries.redelivered
        if deliveries.unsettled and self._key.is_position:
            marks = [True] * rows.num_rows  # not fresh (L10): by positions it decides nothing else
        self._counters.taken += rows.num_rows
        self._counters.without_id += found.without_id
        if at_once is not None:
            self._counters.early += sum(at_once)
        stored = await self._edge.store(
            deliveries.first_tag,
            rows,
            keys=found.keys,
            checks=found.checks,
            content=found.content,
            redelivered=marks,
            at_once=at_once,
        )
        self._counters.stored += stored.rows
        self._counters.matched += stored.matched
        self._stored_number = deliveries.last_tag

    def _at_once(self, deliveries: Deliveries) -> list[bool] | None:
        """Per row, whether it is acknowledged when it is stored, even with `ack=settled`."""
        rows = deliveries.rows.num_rows
        spared = self._holding.at_once(rows, deliveries.delivery_counts)
        if self._early <= 0:
            return spared
        renewed = list(deliveries.redelivered)
        if deliveries.unmarked:
            renewed = [row < self._early for row in range(rows)]
        self._early -= sum(renewed)
        if spared is None:
            return renewed
        return [one or other for one, other in zip(spared, renewed, strict=True)]

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._stores.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._failed.done():
            self._failed.set_exception(task.exception())  # type: ignore[arg-type]

    # --- acknowledging ---

    async def _acknowledge(self) -> None:
        """Settles permitted deliveries, in the edge's order and with its outcomes (L9, L12)."""
        while True:
            permits = await self._edge.permits()
            if permits.subscription != self._edge.subscription:
                continue
            for (first, last), rejected in permits.outcomes:
                if rejected:
                    await self._until_kept()
                settle = self._subscription.reject if rejected else self._subscription.settle
                for tags in self._aside.tags(first, last):
                    settle(*tags)
                self._settlements.permitted(first, last)
                if rejected:
                    self._counters.rejected += last - first + 1
                self._held.remove(first, last)
                self._held_count -= last - first + 1
                self._counters.settled += last - first + 1
                at = bisect_right(self._batch_firsts, first) - 1
                self._turnaround_s = time.monotonic() - self._batch_times[at]
            self._note_proven()
            self._acknowledged.set()

    async def _until_kept(self) -> None:
        """Waits while the remote queue has lost its dead-letter exchange (L28)."""
        if loses_rejected(self._on_reject, self._holding.limits):
            log(
                logging.WARNING,
                self._name,
                "rejections",
                "rejected messages wait, and what is settled behind them: the remote queue has no"
                " dead-letter exchange, and would drop them. Give it one, or start the link with"
                " on-reject=discard to drop them",
            )
        while loses_rejected(self._on_reject, self._holding.limits):  # noqa: ASYNC110 - no event
            await asyncio.sleep(_LOOK_S)

    async def _finish(self, taking: asyncio.Task[None]) -> None:
        """After a stop: ends taking, waits for batches in flight, settles what is permitted.

        A permit that comes too late is not waited for: its delivery comes again and is matched
        (L11).
        """
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        if self._stores:
            await asyncio.wait(self._stores, timeout=STOP_GRACE_S)
        with suppress(TimeoutError, AckqError):
            async with asyncio.timeout(_LAST_PERMITS_S):
                await self._edge.refresh()
                while self._held_count - self._unsent > self._edge.held:
                    self._acknowledged.clear()
                    await self._acknowledged.wait()

    # --- watching ---

    async def _watch(self) -> None:
        """Watches pauses, the state of the edge and the age of held deliveries."""
        told = ""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._edge.changed()
            except TimeoutError:
                pass
            self._note_proven()
            now = time.monotonic()
            self._edge.report(self._figures())
            self._pause(now)
            told = self._tell_of_edge(told)
            age_s = self._oldest_s(now)
            if age_s >= self._holding.max_hold_s:
                self._held_too_long(age_s)
            if now >= self._report_at:
                self._report_at = now + _REPORT_S
                self._report(age_s)

    async def _miss(self) -> None:
        """Logs the number of held messages that the remote broker no longer has (L18).

        Once a look found its queue empty and this link its only consumer, all its redeliveries have
        come by the next look.
        """
        empty, last = False, None
        while last is None or self._stored_number < last:
            await asyncio.sleep(_LOOK_S)
            if last is None and self._edge.missing:
                found = await self._subscription.remaining()
                if found is None or found.consumers != 1:
                    empty = False  # another consumer may give back the messages that it holds
                elif empty:
                    last = self._aside.number(found.last_tag)
                else:
                    empty = not found.ready
        await self._edge.refresh()  # its answer comes after the batches stored so far
        if missing := self._edge.missing:
            log(
                logging.WARNING,
                self._name,
                "vanished",
                f"{missing} messages that queue '{self._edge.queue}' holds were removed at the"
                " remote broker: expired, purged, dead-lettered, or taken by another consumer. They"
                " are processed at the local broker nevertheless; consider this before you bring"
                " dead letters back at the remote broker",
                queue=self._edge.queue,
                messages=missing,
            )
        await asyncio.Event().wait()

    def _pause(self, now: float) -> None:
        """Follows an operator's pause or resume (L25)."""
        if not self._edge.paused:
            if self._paused_at is not None:
                log(logging.INFO, self._name, "resumed", "resumed: takes messages again")
            self._paused_at = None
            self._gate.set()
            return
        if self._paused_at is None:
            self._paused_at = now
            log(
                logging.INFO,
                self._name,
                "paused",
                f"paused: takes no more messages, and acknowledges the {self._held_count} that it"
                " holds",
                held=self._held_count,
            )
        if self._held_count == self._unsent and not self._stores:
            raise GivenBackError(None, 0)

    def _tell_of_edge(self, told: str) -> str:
        """Logs why the edge refuses deliveries, when the reason changes; returns the reason."""
        error = self._edge.refusal or (None if self._edge.connected else self._edge.outage)
        if error is None:
            if told:
                log(logging.INFO, self._name, "edge_back", "the local broker takes messages again")
            return ""
        if error.message != told:
            log(
                logging.WARNING,
                self._name,
                "edge_refused",
                f"the local broker takes no messages, the link holds {self._held_count} and tries"
                f" again: {printable(error.message)}",
                code=error.code,
                held=self._held_count,
            )
        return error.message

    def _oldest_s(self, now: float) -> float:
        """The time in seconds that the oldest delivery has been held."""
        since = self._paused_at if self._paused_at is not None else now
        if self._held:
            at = bisect_right(self._batch_firsts, self._held.lowest) - 1
            del self._batch_firsts[:at], self._batch_times[:at]
            since = min(since, self._batch_times[0])
        else:
            del self._batch_firsts[:-1], self._batch_times[:-1]
        return now - since

    def _held_too_long(self, age_s: float) -> None:
        """Raises GivenBackError to renew or store, PreconditionFailedError to fail (L15)."""
        action = self._holding.at_max_hold
        if action is OnMaxHold.FAIL:
            raise PreconditionFailedError(
                f"A message is held for {age_s:.0f} s, {self._held_count} are held in all: nothing"
                " settles them at the local broker. See why its queue stands still (ackq why"
                " QUEUE), give the link a larger max-hold, or on-max-hold=renew."
            )
        self._counters.renewals += 1
        log(
            logging.WARNING,
            self._name,
            "renewed",
            f"a message is held for {age_s:.0f} s: all {self._held_count} held messages are given"
            " back and received again"
            + (", and acknowledged when matched" if action is OnMaxHold.STORE else ""),
            held=self._held_count,
            age_s=age_s,
            action=action.value,
            lives_left=self._holding.lives_left,
        )
        raise GivenBackError(action, self._held_count)

    @property
    def limited_by(self) -> str:
        """The limiting part of the link: edge, window, broker (nothing arrives) or client (L19)."""
        full = self._held_count >= _FULL * self._subscription.window_messages
        if self._edge.paused or not self._edge.connected or self._edge.refusal is not None:
            return "edge"
        if self._receiving:
            return "window" if full else "broker"
        return "edge" if self._room.locked() else "client"

    def _figures(self) -> links_pb2.LinkReport:
        """The report that operators see at the edge (L26)."""
        report = self._counters.report(self.limited_by)
        report.window_messages = self._subscription.window_messages
        if (lives := self._holding.lives_left) is not None:
            report.lives_left = lives
        return report

    def _report(self, age_s: float) -> None:
        """Logs the state of the link (L26)."""
        pace = self._subscription.window_messages / max(self._turnaround_s, 0.001)
        log(
            logging.INFO,
            self._name,
            "state",
            f"holds {self._held_count} messages, the oldest for {age_s:.0f} s; limited by the"
            f" {self.limited_by}; its window passes at most {pace:.0f} messages/s",
            held=self._held_count,
            oldest_s=age_s,
            limited_by=self.limited_by,
            window_pace=pace,
            lives_left=self._holding.lives_left,
            **vars(self._counters),
        )


async def _stopped(stop: asyncio.Event) -> None:
    await stop.wait()
    raise StoppedError
