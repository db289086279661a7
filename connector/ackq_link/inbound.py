"""The inbound link: from a remote broker's queue to one of the edge. Rules L7, L14 - L17, L20, L28.

Invariant: it persists nothing: its state of deliveries ends with their subscription, and the edge
recognises redeliveries. So it may be killed at any instant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ackq.errors import PreconditionFailedError
from ackq.text import printable
from ackq_link.adapter import CutError, QueueLimits, Source, SourceSubscription
from ackq_link.edge import AsyncLink
from ackq_link.hold_policy import (
    HoldPolicy,
    HoldRules,
    OnMaxHold,
    OnReject,
    check_rejections,
)
from ackq_link.keys import KeyRule
from ackq_link.process import Edge, StoppedError, after_cut, back_off, log, unless
from ackq_link.transfer import GivenBackError, InboundCounters, Transfer

ACKS: Final = ("settled", "stored")
_LEARN_S: Final = 60.0
_OPEN_LOG_S: Final = 5.0
# Back-off between subscriptions when a message has used half of its deliveries (L16).
_SPARING_FIRST_S: Final = 1.0
_SPARING_MOST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class InboundRules:
    """The rules of an inbound link for each message.

    Attributes:
        ack: When it is acknowledged at the remote broker: `settled` or `stored` (L9).
        key: The rule for its origin key, which recognises a redelivery (L2).
        drop_ambiguous: Whether a match by content is made even if the message's acknowledgement may
            have been applied (L7).
        on_reject: Where it goes when it is rejected at the edge (L28).
        holding: How long it is held (L15).
    """

    ack: str = "settled"
    key: KeyRule = field(default_factory=KeyRule)
    drop_ambiguous: bool = False
    on_reject: OnReject = OnReject.HERE
    holding: HoldRules = field(default_factory=HoldRules)


@dataclass
class Inbound:
    """Moves messages from a source at a remote broker to a queue of the edge.

    Args:
        name: The link's name.
        source: The queue that they come from.
        edge: The queue that they go to.
        rules: The rules for each message.
    """

    name: str
    source: Source
    edge: Edge
    rules: InboundRules = field(default_factory=InboundRules)
    counters: InboundCounters = field(default_factory=InboundCounters)

    @property
    def guarantee(self) -> str:
        """The link's delivery guarantee, in a line (L7, L9)."""
        window = self.source.limits.window_messages
        in_doubt = f"at most the {window} whose acknowledgements are in doubt"
        key = self.rules.key
        if key.is_none:
            promise = f"at least once; a cut doubles the held messages, at most {window}"
        elif key.is_position:
            promise = "exactly once, by the positions of the remote stream"
        elif key.is_content and self.rules.drop_ambiguous:
            promise = (
                "exactly once while no two messages are identical; of identical ones a cut may"
                f" lose {in_doubt}"
            )
        elif key.is_content:
            promise = f"at least once; a cut doubles {in_doubt}"
        else:
            what = f"header {key.header}" if key.header else "message_id"
            rest = "loses" if self.rules.drop_ambiguous else "doubles"
            promise = (
                f"exactly once for messages with a {what}; of messages without one a cut"
                f" {rest} {in_doubt}"
            )
        place = (
            f"acknowledged at the remote broker when settled in queue {self.edge.queue}"
            if self.rules.ack == "settled"
            else f"acknowledged messages are on the disk of {self.edge.broker.endpoint} alone"
        )
        if self.rules.on_reject.there:
            place += "; messages rejected at the local broker are rejected at the remote one"
        return f"link {self.name}: in, ack={self.rules.ack}: {promise}; {place}"

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the link until a stop. Raises AckqError for a failure that a retry cannot mend."""
        holding = HoldPolicy(self.rules.holding)
        try:
            holding.limits = await self._learn(stop)
            for check in self._checks:
                check(holding)
            if holding.spares_all and self.rules.ack == "settled":
                log(
                    logging.WARNING,
                    self.name,
                    "lives",
                    f"the delivery limit of the remote queue is {holding.limits.delivery_limit}, so"
                    " each message is acknowledged when it is stored, as with ack=stored",
                )
            edge = AsyncLink(
                replace(self.edge.broker, retry_ms=None),
                link=self.name,
                source=f"{self.source.identity}, key {self.rules.key.name}",
                queue=self.edge.queue,
                ack=self.rules.ack,
                drop_ambiguous=self.rules.drop_ambiguous,
                reject_there=self.rules.on_reject.there,
            )
            try:
                await self._open(edge, stop)
                learning = asyncio.create_task(self._keep_learning(holding))
                try:
                    await self._run(edge, holding, stop)
                finally:
                    learning.cancel()
                    await asyncio.gather(learning, return_exceptions=True)
            finally:
                await edge.close()
        except StoppedError:
            pass
        finally:
            log(
                logging.INFO,
                self.name,
                "stopped",
                f"stopped, {self.counters.stored} stored, {self.counters.settled} acknowledged",
                **vars(self.counters),
            )

    @property
    def _checks(self) -> tuple[Callable[[HoldPolicy], None], ...]:
        """Checks that raise PreconditionFailedError for a remote queue that would lose messages."""
        return (self._check_holding, self._check_rejections)

    def _check_holding(self, holding: HoldPolicy) -> None:
        """Refuses a remote queue that drops messages held too often (L14)."""
        if self.rules.ack == "settled":
            holding.check_start(self.name, self.source.identity)

    def _check_rejections(self, holding: HoldPolicy) -> None:
        """Refuses, or warns of, a remote queue that may not keep rejected messages (L28)."""
        unsure = check_rejections(
            self.name, self.source.identity, self.rules.on_reject, holding.limits
        )
        if unsure:
            log(logging.WARNING, self.name, "rejections", unsure)

    async def _learn(self, stop: asyncio.Event) -> QueueLimits:
        """The limits of the source; waits until it is reachable (L14)."""
        retry = back_off()
        while True:
            try:
                limits = await unless(stop, self.source.learn())
            except CutError as cut:
                if cut.refusal is not None:
                    raise cut.refusal from None
                await after_cut(self.name, retry, stop, cut, self.counters.cuts)
            else:
                self._tell(limits, QueueLimits())
                return limits

    def _tell(self, limits: QueueLimits, before: QueueLimits) -> None:
        """Logs the new warnings and notes on the source, each once."""
        for text in limits.warnings:
            if text not in before.warnings:
                log(logging.WARNING, self.name, "limits_warning", printable(text))
        for text in limits.notes:
            if text not in before.notes:
                log(logging.INFO, self.name, "limits_note", printable(text))

    async def _open(self, edge: AsyncLink, stop: asyncio.Event) -> None:
        """Opens the link at the edge; waits for however long the edge is unavailable (L20)."""
        opening = asyncio.ensure_future(edge.__aenter__())
        told = ""
        try:
            while not opening.done():
                await unless(stop, asyncio.wait((opening,), timeout=_OPEN_LOG_S))
                outage = edge.outage
                if not opening.done() and outage is not None and outage.message != told:
                    told = outage.message
                    log(logging.WARNING, self.name, "edge_unavailable", printable(told))
            opening.result()
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _keep_learning(self, holding: HoldPolicy) -> None:
        """Refreshes the limits of the source at intervals, as an operator may change them (L14).

        A look that tells only a part changes nothing that an earlier one told. A queue known to
        lose dead letters does so until a look says that it keeps them (L28).
        """
        failure = ""
        while True:
            await asyncio.sleep(_LEARN_S)
            try:
                limits = await self.source.learn()
            except Exception as error:  # noqa: BLE001 - nobody awaits this task while the link runs
                before, failure = failure, printable(str(error))
                if failure != before:
                    told = f"a look at the limits of the remote queue failed: {failure}"
                    log(logging.WARNING, self.name, "limits", told)
                continue
            failure = ""
            if limits.partial:
                limits = holding.limits.beside(limits)
            elif limits.dead_letters is None and holding.limits.dead_letters is False:
                limits = replace(limits, dead_letters=False)
            if limits == holding.limits:
                continue
            log(logging.INFO, self.name, "limits", f"limits of the remote queue now: {limits}")
            self._tell(limits, holding.limits)
            holding.limits = limits
            for check in self._checks:
                try:
                    check(holding)
                except PreconditionFailedError as error:
                    log(logging.WARNING, self.name, "limits_warning", error.message)

    async def _run(self, edge: AsyncLink, holding: HoldPolicy, stop: asyncio.Event) -> None:
        """Runs one subscription after another, with back-off after a cut (L17)."""
        retry, sparing = back_off(), back_off(_SPARING_FIRST_S, _SPARING_MOST_S)
        before, early = False, 0
        self._report_cut(edge)
        while True:
            await self._ready(edge, stop)
            progress, settled = self._progress, self.counters.settled
            subscription = None
            try:
                subscription = await unless(stop, self.source.subscribe())
                before = True
                log(
                    logging.INFO,
                    self.name,
                    "connected",
                    "connected, takes messages",
                    cuts=self.counters.cuts,
                )
                early = await self._transfer(edge, holding, subscription, early, stop)
                lost = None
            except CutError as cut:
                # The first acknowledgement, too, may show that the link can never work.
                first = subscription is not None and self.counters.settled and not settled
                refused = first and not self.counters.proven
                if cut.refusal is not None and (refused or not before):
                    raise cut.refusal from None
                lost, early = cut, 0
                self._report_cut(edge)
            if self._progress > progress:
                retry.reset()
            if not holding.half_spent:
                sparing.reset()
            if lost is not None:
                wait = sparing if holding.half_spent else retry
                await after_cut(self.name, wait, stop, lost, self.counters.cuts)

    def _report_cut(self, edge: AsyncLink) -> None:
        """Lets operators see that nothing is acknowledged until the link has connected (L26)."""
        edge.report(self.counters.report("connection"))

    @property
    def _progress(self) -> int:
        """A count that grows with new and settled messages, which a cut does not bring again."""
        return self.counters.stored - self.counters.matched + self.counters.settled

    async def _ready(self, edge: AsyncLink, stop: asyncio.Event) -> None:
        """Waits while the link is paused or the edge is away: deliveries would only be held."""
        while edge.paused or not edge.connected:
            await unless(stop, edge.changed())

    async def _transfer(
        self,
        edge: AsyncLink,
        holding: HoldPolicy,
        subscription: SourceSubscription,
        early: int,
        stop: asyncio.Event,
    ) -> int:
        """Moves the deliveries of one subscription, and closes it.

        Returns:
            The number of given-back deliveries to acknowledge as soon as they are matched (L15).

        Raises:
            CutError: The subscription ended.
            StoppedError: A stop was requested.
        """
        transfer = Transfer(
            self.name,
            edge,
            subscription,
            self.rules.key,
            holding,
            self.counters,
            early,
            on_reject=self.rules.on_reject,
        )
        requeue = False
        try:
            await transfer.run(stop)
        except CutError:
            self.counters.cuts += 1
            if holding.half_spent:
                self._warn_of_lives(holding)
            raise
        except StoppedError:
            requeue = True
            raise
        except GivenBackError as given:
            requeue = True
            if not transfer.begun or given.action is not None:
                self._report_cut(edge)
            if not transfer.begun:
                return early
            return given.held if given.action is OnMaxHold.STORE else 0
        finally:
            await subscription.close(requeue=requeue)
        raise AssertionError("a transfer ends by an error")

    def _warn_of_lives(self, holding: HoldPolicy) -> None:
        """Warns that a message has used half of its deliveries (L16)."""
        log(
            logging.WARNING,
            self.name,
            "lives",
            f"the remote broker has delivered a message {holding.most_deliveries + 1} times, of"
            f" {holding.limits.delivery_limit} at most: the link connects again more slowly",
            lives_left=holding.lives_left,
        )
