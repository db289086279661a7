"""State machine of a link's stream; no I/O, no clock, no lock (its stream has those).

Invariant: deliveries go in the order of their numbers, also after they were refused (L8); a number
is permitted once, however often the edge says so (L10).
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


class SendSubscribe(NamedTuple):
    """Begin a subscription."""


class SendPart(NamedTuple):
    """Send deliveries."""

    part: LinkPart
    subscription: int
    lowest_unanswered: int
    proof: Proof


class SendHeartbeat(NamedTuple):
    """Give a sign of life."""

    subscription: int
    proof: Proof
    report: pb.LinkReport | None


Action = SendSubscribe | SendPart | SendHeartbeat | Wait | Finish
Subscribed = Callable[[int | AckqError], None]


class Opened(NamedTuple):
    """What a link is since its first open."""

    incarnation: str
    epoch: int
    history: str


class LinkState:
    """One link's stream, over all its calls.

    Attributes:
        opened: Since the first open; None before.
        connected: Whether a call is open.
        subscription: The present one; 0 before the first.
        paused: An operator paused the link.
        held: What the edge said last of deliveries that are not settled.
        missing: What it said last of held messages that were not delivered again.
        refusal: Why the edge takes nothing; None while it does.
        permits: Numbers that may be settled there and were not taken, in the order of the permits.
        rejected: Whether each of these ranges is to be rejected there (L28).
        finishing: Nothing more is sent.
        ended: Why the edge ended the subscription by itself; None: it did not.
        report: What operators are told with the next heartbeats; None: nothing.
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
        # Parts in the order of their numbers: sent and not answered, refused, to be sent.
        self._in_flight: deque[LinkPart] = deque()
        self._refused: list[LinkPart] = []
        self._waiting: deque[LinkPart] = deque()
        self._next_number = 1
        self._unpermitted = Ranges()
        self._retry_at = 0.0
        self._retry = Backoff(None, jitter=lambda: 0.0)  # no chance in a state machine
        self._heartbeat_at = 0.0
        # Heartbeats of this call, and the states that answered them.
        self._beats = self._states = 0

    @property
    def done(self) -> bool:
        """Whether nothing will follow."""
        return self.finishing

    # --- what the application does ---

    def subscribe(self, proof: Callable[[], Proof], subscribed: Subscribed) -> None:
        """Begins a subscription: all of the one before is forgotten."""
        self._abandon(ClosedError("Another subscription of the link began; deliver anew."))
        self._subscribing, self._subscribe_sent = (proof, subscribed), False
        self.permits, self.rejected, self._unpermitted = [], [], Ranges()
        self._next_number, self.held, self.refusal, self.ended = 1, 0, None, None
        self.missing = 0
        self._retry_at = 0.0
        self._retry.reset()

    def add(self, parts: Iterable[LinkPart]) -> None:
        """Queues deliveries, which must follow those before; raises InvalidArgumentError."""
        for part in parts:
            if part.numbers.first != self._next_number:
                raise InvalidArgumentError(
                    f"Delivery {part.numbers.first} does not follow the one before, which makes"
                    f" {self._next_number} the next of this subscription.",
                    argument="first_number",
                )
            self._waiting.append(part)
            self._unpermitted.extend(*part.numbers)
            self._next_number = part.numbers.last + 1

    @property
    def may_store(self) -> bool:
        """Whether a subscription was begun."""
        return bool(self.subscription) and self._subscribing is None

    def refresh(self) -> int:
        """Sends a heartbeat at once; the number of its answer on this call."""
        self._heartbeat_at = 0.0
        return self._beats + 1

    def refreshed(self, number: int) -> bool:
        """Whether that answer came."""
        return self._states >= number

    def take_permits(self) -> tuple[list[Range], list[bool]]:
        """The permits that were not taken, and which of them are to reject; none: empty."""
        taken = self.permits, self.rejected if any(self.rejected) else []
        self.permits, self.rejected = [], []
        return taken

    # --- what the sender does ---

    def next_action(self, now: float) -> Action:
        """What to send next, or how long to wait for it."""
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
            return SendPart(part, self.subscription, lowest, self._told()[1])
        due = self._waiting and not self._refused and now < self._retry_at
        return Wait(min(self._heartbeat_at, self._retry_at) if due else self._heartbeat_at)

    def _told(self) -> tuple[int, Proof]:
        """The present subscription, and what is proven of it."""
        if not self.may_store:
            return 0, Proof()
        return self.subscription, self._proof()

    # --- answers and disconnects ---

    def on_opened(self, answer: pb.LinkOpened) -> None:
        """Checks that it is the same link, and lets requests be sent.

        Raises:
            HistoryChangedError: The edge has another history than at the first open (L27).
            FencedError: Another process ran the link meanwhile.
        """
        now = Opened(answer.incarnation, answer.epoch, answer.history)
        before = self.opened
        if before is not None and before.history != now.history:
            raise HistoryChangedError(
                f"The history of the edge is {now.history} and was {before.history}: it lost what"
                " it had, or was restored. What is not acknowledged at the other broker is stored"
                " as new when the link starts again.",
                expected=before.history,
                found=now.history,
            )
        if before is not None and before != now:
            raise FencedError(
                "Another process ran the link while this one was cut off from the edge; start the"
                " link again if this is the one that shall run it."
            )
        self.opened, self.connected, self.paused = now, True, answer.paused
        if self.may_store and answer.subscription != self.subscription:
            self.subscription = 0
            self.ended = ClosedError(
                "The edge ended the subscription: it lost messages of it. Consume anew at the other"
                " broker, and subscribe again."
            )
            self._abandon(self.ended)

    def on_subscribed(self, subscription: int) -> None:
        """The subscription that was asked for began."""
        if self._subscribing is not None and self._subscribe_sent:
            self._proof, subscribed = self._subscribing
            self._subscribing, self.subscription = None, subscription
            subscribed(subscription)

    def on_stored(self, answer: pb.LinkStored, now: float) -> None:
        """The oldest deliveries on this call are stored, or refused; raises InternalError."""
        if not self._in_flight or self._in_flight[0].numbers.first != answer.first_number:
            raise InternalError(f"The edge answered deliveries {answer.first_number} out of turn.")
        part = self._in_flight[0]
        if not part.abandoned and not answer.refused:
            self._complete(part, answer)  # before it is taken: an answer that is none fails it
        self._in_flight.popleft()
        if answer.refused and not part.abandoned:
            reason = from_code(answer.refused, answer.reason, {})
            if 0 < answer.fitting < part.rows:
                self._refuse(now, reason, *part.split(answer.fitting))
            else:
                self._refuse(now, reason, part)

    def _complete(self, part: LinkPart, answer: pb.LinkStored) -> None:
        """Gives the deliveries of a part their positions; raises InternalError."""
        self.refusal = None
        self._retry.reset()
        stored = _stored(answer)
        if stored.rows != part.rows:
            raise InternalError(
                f"The edge answered {stored.rows} deliveries of {part.rows} from"
                f" {answer.first_number} on."
            )
        for run in stored.runs:
            if run.permitted:
                last = run.first_number + run.rows - 1
                self._permit(run.first_number, last, rejected=run.rejected)
        part.complete(stored)

    def _refuse(self, now: float, reason: AckqError, *parts: LinkPart) -> None:
        """Keeps refused deliveries; when all that was sent is answered they wait for their turn."""
        self.refusal = reason
        self._refused.extend(parts)
        if any(not each.abandoned for each in self._in_flight):
            return  # they are refused, too
        self._waiting.extendleft(reversed(self._refused))
        self._refused = []
        self._retry_at = now + self._retry.next_s()

    def on_permits(self, answer: pb.LinkPermits) -> None:
        """Deliveries may be acknowledged there; raises InternalError."""
        if self.may_store:  # else they are of the subscription before
            ranges = len(answer.first_number)
            if ranges != len(answer.last_number) or len(answer.rejected) not in {0, ranges}:
                raise InternalError("The edge sent permits whose lists have several lengths.")
            outcomes = answer.rejected or bytes(ranges)
            for each in zip(answer.first_number, answer.last_number, outcomes, strict=True):
                self._permit(*each[:2], rejected=bool(each[2]))

    def _permit(self, first: int, last: int, *, rejected: bool) -> None:
        """Permits each number once: a new call repeats what may have been lost with the last."""
        for each in self._unpermitted.remove(first, last):
            before = self.permits[-1] if self.permits else None
            if before and before.last + 1 == each.first and self.rejected[-1] == rejected:
                self.permits[-1] = Range(before.first, each.last)
            else:
                self.permits.append(each)
                self.rejected.append(rejected)

    def on_state(self, answer: pb.LinkState) -> None:
        """How the link stands."""
        self._states += 1
        self.paused = answer.paused
        if self.may_store:
            self.held, self.missing = answer.held, answer.missing

    def on_disconnect(self) -> None:
        """Sends what is unanswered again on the next call, in its order."""
        self.connected = self._subscribe_sent = False
        unanswered = [part for part in self._in_flight if not part.abandoned]
        self._waiting.extendleft(reversed([*self._refused, *unanswered]))
        self._in_flight.clear()
        self._refused = []
        self._heartbeat_at = 0.0
        self._beats = self._states = 0

    def fail(self, error: AckqError) -> None:
        """The stream has ended: nothing more is answered."""
        self.finishing = True
        self._abandon(error)
        if self._subscribing is not None:
            _, subscribed = self._subscribing
            self._subscribing = None
            subscribed(error)

    def _abandon(self, error: AckqError) -> None:
        """Ends the wait for all deliveries; answers to those that were sent may come."""
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
        raise InternalError("The edge answered deliveries with lists of several lengths.")
    runs, number = [], answer.first_number
    for rows, position, *flags in zip(*lists, strict=True):
        runs.append(StoredRun(number, rows, position, *map(bool, flags)))
        number += rows
    return StoredDeliveries(tuple(runs))
