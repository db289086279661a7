"""State machine of a link's stream; no I/O, no clock, no lock (its stream has those).

Invariant: deliveries are sent in the order of their numbers, also after they were refused (L8); a
number is permitted once, however often the edge repeats its permit (L10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ackq import limits
from ackq.client.connection.duplex import Finish, Wait
from ackq.client.connection.retry import Backoff
from ackq.client.ranges import Range, Ranges
from ackq.errors import (
    AckqError,
    ClosedError,
    FencedError,
    HistoryChangedError,
    InternalError,
    InvalidArgumentError,
    from_code,
)
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.deliveries import LinkPart, Proof, StoredDeliveries, StoredRun

_HEARTBEAT_S: Final = limits.HEARTBEAT_SEND_MS / 1000
# After a subscription that repetitions ended: a remote broker may bring them late in each one.
_REPEATS_S: Final = 3600.0


class SendSubscribe(NamedTuple):
    """Action: begin a subscription."""


class SendPart(NamedTuple):
    """Action: send deliveries."""

    part: LinkPart
    subscription: int
    lowest_unanswered: int
    proof: Proof
    repeats_end: bool


class SendHeartbeat(NamedTuple):
    """Action: send a heartbeat."""

    subscription: int
    proof: Proof
    report: pb.LinkReport | None


Action = SendSubscribe | SendPart | SendHeartbeat | Wait | Finish
Subscribed = Callable[[int | AckqError], None]


class Opened(NamedTuple):
    """The link's identity, fixed by its first open: incarnation, epoch, history of the edge."""

    incarnation: str
    epoch: int
    history: str


class LinkState:
    """The state of one link's stream, over all its calls.

    Attributes:
        opened: The identity from the first open; None before.
        connected: Whether a call is open.
        subscription: The present subscription; 0 before the first.
        paused: An operator paused the link.
        held: Number of unsettled deliveries, as last reported by the edge.
        missing: Number of held messages that were not redelivered, as last reported by the edge.
        refusal: Why the edge refuses deliveries; None while it accepts them.
        permits: Delivery numbers that may be settled at the remote broker and were not taken yet,
            in the order of the permits.
        rejected: Whether each of these ranges is to be rejected at the remote broker (L28).
        finishing: Nothing more is sent.
        ended: Why the edge ended the subscription by itself; None: it did not.
        report: The report to operators, sent with the next heartbeats; None: nothing.
    """

    def __init__(self) -> None:
        self.opened: Opened | None = None
        self.connected = False
        self.subscription = 0
        self.paused = False
        self.held = self.missing = 0
        self.refusal: AckqError | None = None
        self.permits: list[Range] = []
        self.rejected: list[bool] = []
        self.finishing = False
        self.ended: AckqError | None = None
        self.report: pb.LinkReport | None = None
        self._proof: Callable[[], Proof] = Proof
        self._subscribing: tuple[Callable[[], Proof], Subscribed] | None = None
        self._subscribe_sent = False
        # Parts in the order of their numbers: sent and unanswered, refused, to be sent.
        self._in_flight: deque[LinkPart] = deque()
        self._refused: list[LinkPart] = []
        self._waiting: deque[LinkPart] = deque()
        self._next_number = 1
        self._unpermitted = Ranges()
        self._retry_at = 0.0
        self._retry = Backoff(None, jitter=lambda: 0.0)  # a state machine uses no randomness
        self._heartbeat_at = 0.0
        self._repeats_from = 0.0  # from then on repetitions end the subscription (L6)
        # Number of heartbeats sent on this call, and of state reports that answered them.
        self._beats = self._states = 0
        # Number of requests to subscribe, sent on this call, that a later one replaced.
        self._overtaken = 0

    @property
    def done(self) -> bool:
        """Whether the stream sends nothing more."""
        return self.finishing

    # --- what the application does ---

    def subscribe(self, proof: Callable[[], Proof], subscribed: Subscribed) -> None:
        """Begins a subscription: all state of the previous one is forgotten."""
        self._abandon(
            ClosedError("Another subscription of the link began; deliver the messages again.")
        )
        self._overtaken += self._subscribe_sent and self._subscribing is not None
        self._subscribing, self._subscribe_sent = (proof, subscribed), False
        self.permits, self.rejected, self._unpermitted = [], [], Ranges()
        self._next_number, self.held, self.refusal, self.ended = 1, 0, None, None
        self.missing = 0
        self._retry_at = 0.0
        self._retry.reset()

    def add(self, parts: Iterable[LinkPart]) -> None:
        """Queues deliveries; raises InvalidArgumentError if their numbers leave a gap or repeat."""
        for part in parts:
            if part.numbers.first != self._next_number:
                raise InvalidArgumentError(
                    f"Delivery {part.numbers.first} does not follow the previous one: the next of"
                    f" this subscription is {self._next_number}.",
                    argument="first_number",
                )
            self._waiting.append(part)
            self._unpermitted.extend(*part.numbers)
            self._next_number = part.numbers.last + 1

    @property
    def may_store(self) -> bool:
        """Whether deliveries can be stored: a subscription is open, and none is being begun."""
        return bool(self.subscription) and self._subscribing is None

    def refresh(self) -> int:
        """Makes a heartbeat due at once; returns the number that its answer has on this call."""
        self._heartbeat_at = 0.0
        return self._beats + 1

    def refreshed(self, number: int) -> bool:
        """Whether answer `number` to a heartbeat of this call has come."""
        return self._states >= number

    def take_permits(self) -> tuple[list[Range], list[bool]]:
        """Takes the pending permits, and whether each range is to be rejected; empty: none is."""
        taken = self.permits, self.rejected if any(self.rejected) else []
        self.permits, self.rejected = [], []
        return taken

    # --- what the sender does ---

    def next_action(self, now: float) -> Action:
        """The next action: something to send, or how long to wait."""
        if self.finishing:
            return Finish()
        if not self.connected:
            return Wait(None)
        if self._subscribing is not None and not self._subscribe_sent:
            self._subscribe_sent = True
            return SendSubscribe()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + _HEARTBEAT_S
            self._beats += 1
            return SendHeartbeat(*self._told(), self.report)
        if self.may_store and self._waiting and not self._refused and now >= self._retry_at:
            part = self._waiting.popleft()
            self._in_flight.append(part)
            lowest = self._in_flight[0].numbers.first
            repeats_end = now >= self._repeats_from
            return SendPart(part, self.subscription, lowest, self._told()[1], repeats_end)
        due = self._waiting and not self._refused and now < self._retry_at
        return Wait(min(self._heartbeat_at, self._retry_at) if due else self._heartbeat_at)

    def _told(self) -> tuple[int, Proof]:
        """The present subscription and its proof; 0 and an empty proof without one."""
        if not self.may_store:
            return 0, Proof()
        return self.subscription, self._proof()

    # --- answers and disconnects ---

    def on_opened(self, answer: pb.LinkOpened) -> None:
        """Checks that the open link is the same as before, and allows requests to be sent.

        Raises:
            HistoryChangedError: The edge has another history than at the first open (L27).
            FencedError: Another process ran the link meanwhile.
        """
        now = Opened(answer.incarnation, answer.epoch, answer.history)
        before = self.opened
        if before is not None and before.history != now.history:
            raise HistoryChangedError(
                f"The history of the local broker is {now.history} and was {before.history}: its"
                " data was lost or restored. Messages that are not acknowledged at the remote"
                " broker are stored as new ones when the link starts again.",
                expected=before.history,
                found=now.history,
            )
        if before is not None and before != now:
            raise FencedError(
                "Another process ran the link while this one was cut off from the local broker;"
                " start the link again if this process is to run it."
            )
        self.opened, self.connected, self.paused = now, True, answer.paused
        if self.may_store and answer.subscription != self.subscription:
            self.subscription = 0
            self.ended = ClosedError(
                "The local broker ended the subscription, because it lost messages of it. Consume"
                " again at the remote broker, and subscribe again."
            )
            self._abandon(self.ended)

    def on_subscribed(self, subscription: int) -> None:
        """Records that the requested subscription began, and completes its request."""
        if self._overtaken:
            self._overtaken -= 1
        elif self._subscribing is not None and self._subscribe_sent:
            self._proof, subscribed = self._subscribing
            self._subscribing, self.subscription = None, subscription
            subscribed(subscription)

    def on_stored(self, answer: pb.LinkStored, now: float) -> None:
        """Completes the oldest part in flight, or keeps it if refused; raises InternalError.

        The refusal `closed` ends the subscription instead.
        """
        if not self._in_flight or self._in_flight[0].numbers.first != answer.first_number:
            raise InternalError(
                f"The local broker answered deliveries {answer.first_number} out of order."
            )
        part = self._in_flight[0]
        if answer.refused == ClosedError.code and not part.abandoned:
            self._repeats_from = now + _REPEATS_S
            self.ended = ClosedError(answer.reason)
            self._abandon(self.ended)
        if not part.abandoned and not answer.refused:
            self._complete(part, answer)  # before it is removed: an invalid answer fails it
        self._in_flight.popleft()
        if answer.refused and not part.abandoned:
            reason = from_code(answer.refused, answer.reason, {})
            if 0 < answer.fitting < part.rows:
                self._refuse(now, reason, *part.split(answer.fitting))
            else:
                self._refuse(now, reason, part)

    def _complete(self, part: LinkPart, answer: pb.LinkStored) -> None:
        """Completes a part with its stored positions; raises InternalError."""
        self.refusal = None
        self._retry.reset()
        stored = _stored(answer)
        if stored.rows != part.rows:
            raise InternalError(
                f"The local broker answered {stored.rows} deliveries of {part.rows} from"
                f" {answer.first_number} on."
            )
        for run in stored.runs:
            if run.permitted:
                last = run.first_number + run.rows - 1
                self._permit(run.first_number, last, rejected=run.rejected)
        part.complete(stored)

    def _refuse(self, now: float, reason: AckqError, *parts: LinkPart) -> None:
        """Keeps refused parts; once every part in flight is answered, queues them for a retry."""
        self.refusal = reason
        self._refused.extend(parts)
        if any(not each.abandoned for each in self._in_flight):
            return  # they will be refused, too
        self._waiting.extendleft(reversed(self._refused))
        self._refused = []
        self._retry_at = now + self._retry.next_s()

    def on_permits(self, answer: pb.LinkPermits) -> None:
        """Adds permits to settle at the remote broker; raises InternalError."""
        if self.may_store:  # else they are of the previous subscription
            ranges = len(answer.first_number)
            if ranges != len(answer.last_number) or len(answer.rejected) not in {0, ranges}:
                raise InternalError("The local broker sent permits whose lists differ in length.")
            outcomes = answer.rejected or bytes(ranges)
            for each in zip(answer.first_number, answer.last_number, outcomes, strict=True):
                self._permit(*each[:2], rejected=bool(each[2]))

    def _permit(self, first: int, last: int, *, rejected: bool) -> None:
        """Permits each number once: a new call repeats permits that the last may have lost."""
        for each in self._unpermitted.remove(first, last):
            before = self.permits[-1] if self.permits else None
            if before and before.last + 1 == each.first and self.rejected[-1] == rejected:
                self.permits[-1] = Range(before.first, each.last)
            else:
                self.permits.append(each)
                self.rejected.append(rejected)

    def on_state(self, answer: pb.LinkState) -> None:
        """Records a state report of the edge: paused, held, missing."""
        self._states += 1
        self.paused = answer.paused
        if self.may_store:
            self.held, self.missing = answer.held, answer.missing

    def on_disconnect(self) -> None:
        """Queues the unanswered parts again for the next call, in their order."""
        self.connected = self._subscribe_sent = False
        unanswered = [part for part in self._in_flight if not part.abandoned]
        self._waiting.extendleft(reversed([*self._refused, *unanswered]))
        self._in_flight.clear()
        self._refused = []
        self._heartbeat_at = 0.0
        self._beats = self._states = self._overtaken = 0

    def fail(self, error: AckqError) -> None:
        """Fails everything that waits for an answer: the stream has ended."""
        self.finishing = True
        self._abandon(error)
        if self._subscribing is not None:
            _, subscribed = self._subscribing
            self._subscribing = None
            subscribed(error)

    def _abandon(self, error: AckqError) -> None:
        """Fails all deliveries; late answers to the parts that were sent are ignored."""
        for part in (*self._in_flight, *self._refused, *self._waiting):
            if not part.abandoned:
                part.abandoned = True
                part.complete(error)
        self._refused = []
        self._waiting.clear()


def _stored(answer: pb.LinkStored) -> StoredDeliveries:
    outcomes = answer.rejected or bytes(len(answer.rows))
    lists = (answer.rows, answer.first_position, answer.matched, answer.permitted, outcomes)
    if len(set(map(len, lists))) != 1:
        raise InternalError(
            "The local broker answered deliveries with lists that differ in length."
        )
    runs, number = [], answer.first_number
    for rows, position, *flags in zip(*lists, strict=True):
        runs.append(StoredRun(number, rows, position, *map(bool, flags)))
        number += rows
    return StoredDeliveries(tuple(runs))
