"""A pull consumer: deliveries, and acknowledgements that are answered. Rules L10, L19, L30, L31.

Invariant: a sequence has one tag in a subscription, and a settlement counts as proven when the
server has answered it and all earlier ones.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from pyroaring import BitMap64

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import CutError, Deliveries, Limits, Positions, Remaining
from ackq_link.jetstream.connection import CALL_S, NatsConnection, Received
from ackq_link.jetstream.messages import to_rows

_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 8 << 20
_CLOSE_S: Final = 5.0
_PULL_S: Final = 30.0
_BEAT_S: Final = 5.0
_MISSED_BEATS: Final = 3
_NS: Final = 1_000_000_000
# Settlements of this time share a pull; a pull that the server refused is asked again after it.
_FLOW_S: Final = 0.002
_AGAIN_S: Final = 0.2
# A redelivery may come so much later than it is due.
_LATE_S: Final = 5.0
# For this time after a pull that was answered, or a look, the consumer counts as the same one.
_SURE_S: Final = 0.01
_ACK, _NAK, _TERM, _WPI = b"+ACK", b"-NAK", b"+TERM", b"+WPI"
# Indices of delivery count, sequence, the consumer's count of deliveries, and time in the subject
# that acknowledges a delivery, from its tokens: $JS.ACK.STREAM.CONSUMER..., or with domain and
# account after ACK.
_SHORT: Final = 9
_PLACES: Final = {True: slice(4, 8), False: slice(6, 10)}


class Pulling(NamedTuple):
    """How a consumer is asked for messages.

    Attributes:
        subject: Where.
        most: The most messages of a request.
        wait_s: The shortest time after which a held message is redelivered.
        most_s: The longest time that a request may wait; 0: no bound.
        most_bytes: The most bytes of a request; 0: no bound.
        most_pending: The most messages that may be unacknowledged; 0 or less: no bound.
        created: The creation time of the consumer.
        longest_s: The longest time after which an unacknowledged message is redelivered.
    """

    subject: str
    most: int
    wait_s: float
    most_s: float
    most_bytes: int = 0
    most_pending: int = 0
    created: str = ""
    longest_s: float = 0.0


class KeysOf(Protocol):
    """Makes the origin keys of sequences."""

    def positions(self, sequences: Sequence[int], stored_ns: Sequence[int]) -> Positions:
        """The keys of messages, and the times at which the stream stored them."""
        ...


class _Delivery:
    """A message in hand: sequence, time of its storing, where its last delivery is acknowledged."""

    __slots__ = ("ns", "reply", "sequence", "size")

    def __init__(self, sequence: int, ns: int, reply: bytes, size: int) -> None:
        self.sequence = sequence
        self.ns = ns
        self.reply = reply
        self.size = size


class StreamSubscription:
    """Deliveries and settlements of one consumer on one connection."""

    def __init__(
        self, connection: NatsConnection, limits: Limits, pulling: Pulling, keys: KeysOf
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._pulling = pulling
        self._keys = keys
        self._inbox = connection.new_inbox()
        self._waiting: list[tuple[Received, _Delivery, int]] = []  # count
        self.last_tag = 0
        self._held: dict[int, _Delivery] = {}
        self._aside: dict[int, _Delivery] = {}
        self._held_bytes = 0
        self._in_hand: dict[int, _Delivery] = {}  # by sequence: held, aside, or not answered
        self._came = BitMap64()
        self._counted = 0  # the consumer's own count of the last delivery
        self._due: list[bytes] = []
        self._settled = self._proven = 0
        self._unanswered: dict[int, tuple[_Delivery, float]] = {}  # by number of settlement
        self._asked = self._pulls = self._silent = 0
        self._heard_s = 0.0
        self._sure_s = time.monotonic()  # when the consumer was last known to be the same
        self._unsettled_until_s = self._sure_s + pulling.longest_s + _LATE_S
        self._look: asyncio.Task[None] | None = None
        self._looked = self._alone = self._capped = self._stopped = self._closing = False
        self._cut: CutError | None = None
        self._arrived = asyncio.Event()
        self._answered = asyncio.Event()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        connection.on_end = self.end

    async def start(self) -> None:
        """Subscribes and pulls. Raises CutError."""
        await self._connection.listen(f"{self._inbox}.p.*", self._take)
        await self._connection.listen(f"{self._inbox}.a.*", self._take_answer)
        self._pull()
        self._soon(self._keep, self._pulling.wait_s / 3)
        self._soon(self._watch, _BEAT_S)
        await self._connection.flush()

    @property
    def proven(self) -> int:
        """The number of settlements, in their order, that the server has answered (L10)."""
        return self._proven

    async def deliver(self) -> Deliveries:
        """The deliveries that have come, up to a batch; waits for the first. Raises CutError."""
        while True:
            if self._cut is not None:
                raise self._cut
            if self._waiting:
                return self._taken()
            self._arrived.clear()
            await self._arrived.wait()

    def settle(self, first_tag: int, last_tag: int) -> None:
        """Acknowledges a range of tags, each by a request that is answered (L12)."""
        self._decide(first_tag, last_tag, _ACK)

    def reject(self, first_tag: int, last_tag: int) -> None:
        """Terminates a range of tags, in one order with `settle` (L28)."""
        self._decide(first_tag, last_tag, _TERM)

    def set_aside(self, tag: int) -> None:
        """Keeps a delivery from coming again, outside the window (L29)."""
        self._aside[tag] = delivery = self._held.pop(tag)
        self._held_bytes -= delivery.size
        self._soon(self._pull, _FLOW_S)

    @property
    def window_messages(self) -> int:
        """The window in messages, as far as messages set aside leave the consumer room for it."""
        most, window = self._pulling.most_pending, self._limits.window_messages
        return min(window, max(0, most - len(self._aside))) if most > 0 else window

    async def remaining(self) -> Remaining | None:
        """The messages that no client has, and the consumer's clients (L18)."""
        _, _, place = self._pulling.subject.partition(".NEXT.")
        try:
            found = await self._connection.ask(
                f"CONSUMER.INFO.{place}", num_ack_pending=int, num_pending=int, num_waiting=int
            )
        except CutError:
            return None
        theirs = found["num_ack_pending"] - len(self._in_hand)
        return Remaining(
            found["num_pending"] + max(0, theirs), max(1, found["num_waiting"]), self.last_tag
        )

    async def close(self, *, requeue: bool = False) -> None:
        """Waits a limited time for the answers of the last settlements, and closes.

        Args:
            requeue: Give back what is held; JetStream counts that as a delivery.
        """
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        if self._cut is None:
            with suppress(CutError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    # Without it what is given back would come at once to the pull that waits.
                    await self._connection.forget(self._take)
                    self._send_due()
                    if self._look is not None:
                        await self._look
                    while self._unanswered and self._cut is None:
                        self._answered.clear()
                        await self._answered.wait()
                    if requeue and self._cut is None:
                        back = (*self._held.values(), *self._aside.values())
                        self._connection.write(_pub(each.reply, _NAK) for each in back)
                    await self._connection.flush()
        await self._connection.close()
        if self._look is not None:
            self._look.cancel()

    def end(self, cut: CutError) -> None:
        """Ends the subscription for this reason; nothing is acknowledged after it."""
        if self._cut is None:
            self._cut = cut
            for timer in self._timers.values():
                timer.cancel()
            self._arrived.set()
            self._answered.set()

    # --- deliveries ---

    def _take(self, message: Received) -> None:
        """Takes a delivery, or a status of a pull."""
        self._heard_s, self._silent = time.monotonic(), 0
        words = message.reply.split(b".")
        if len(words) < _SHORT:
            self._take_status(message)
            return
        count, sequence, counted, ns = map(int, words[_PLACES[len(words) == _SHORT]])
        self._asked -= 1
        if counted <= self._counted:
            self.end(CutError("the consumer counts its deliveries from 1: it was created again"))
        self._counted = counted
        if self._cut is not None:
            return
        if sequence in self._came:
            self._take_again(sequence, ns, message.reply)
        else:
            self._came.add(sequence)
            size = len(message.body)
            delivery = _Delivery(sequence, ns, message.reply, size)
            self.last_tag += 1
            self._in_hand[sequence] = self._held[self.last_tag] = delivery
            self._held_bytes += size
            self._waiting.append((message, delivery, count))
            self._arrived.set()
        if self._asked <= 0:
            self._soon(self._pull, _FLOW_S)

    def _take_again(self, sequence: int, ns: int, reply: bytes) -> None:
        """Takes another delivery of a message of this subscription (L30)."""
        delivery = self._in_hand.get(sequence)
        if delivery is None:
            self.end(CutError(f"message {sequence} came again after its acknowledgement"))
        elif delivery.ns != ns:
            self.end(CutError(f"message {sequence} is another one, stored at another time"))
        else:
            delivery.reply = reply

    def _taken(self) -> Deliveries:
        """Moves the first waiting messages, at most a batch, into columns."""
        rows = size = 0
        for message, *_ in self._waiting[:_BATCH_ROWS]:
            size += len(message.body)
            if rows and size > _BATCH_BYTES:
                size -= len(message.body)
                break
            rows += 1
        first = self.last_tag - len(self._waiting) + 1
        messages, deliveries, counts = zip(*self._waiting[:rows], strict=True)
        del self._waiting[:rows]
        ns = [each.ns for each in deliveries]
        subjects, _, headers, bodies = zip(*messages, strict=True)
        return Deliveries(
            to_rows(subjects, headers, bodies, ns),
            first,
            [count > 1 for count in counts],
            size,
            [count - 1 for count in counts],
            self._keys.positions([each.sequence for each in deliveries], ns),
            unsettled=time.monotonic() < self._unsettled_until_s,
        )

    # --- pulls ---

    def _pull(self) -> None:
        """Asks for as many messages and bytes as have room in the window (L19)."""
        limits = self._limits
        room = min(limits.window_messages - len(self._held), self._pulling.most)
        left = limits.window_bytes - self._held_bytes
        self._stopped = left <= 0 or (self._stopped and left < limits.window_bytes // 2)
        full = room < 1 or self._stopped
        if self._asked > 0 or full or self._closing or self._cut is not None or not self._is_sure():
            return
        wait_s = min(_PULL_S, self._pulling.most_s or _PULL_S)
        most_bytes = min(left, self._pulling.most_bytes or left)
        self._capped = most_bytes < left
        wanted = {"batch": room, "max_bytes": most_bytes} if not self._alone else {"batch": 1}
        wanted |= {
            "expires": int(wait_s * _NS),
            "idle_heartbeat": int(min(_BEAT_S, wait_s / 3) * _NS),
        }
        self._asked, self._alone = wanted["batch"], False
        self._pulls += 1
        self._heard_s = self._sure_s = time.monotonic()
        reply = f"{self._inbox}.p.{self._pulls}"
        self._send_due()  # first: the pull may bring the same sequences of a new stream (L30)
        self._connection.write(
            [_pub(f"{self._pulling.subject} {reply}".encode(), json.dumps(wanted).encode())]
        )

    def _take_status(self, message: Received) -> None:
        line = message.headers.partition(b"\r\n")[0].decode(errors="replace")
        status, _, said = line.partition(" ")[2].partition(" ")
        if status == "100":
            return
        if not message.subject.endswith(f".p.{self._pulls}".encode()):
            return  # of an earlier pull
        self._asked = 0
        if "Exceeds MaxBytes" in said:
            # A message over the window's bytes is taken alone, when nothing else is held; one over
            # those of a request at once.
            self._alone = self._capped or not self._held
            self._stopped = not self._alone
            self._soon(self._pull, _AGAIN_S)
        elif "Leadership" in said or "Shutdown" in said:
            self._soon(self._pull, _AGAIN_S)
        elif status in {"404", "408"} or "Completed" in said:
            self._soon(self._pull, _FLOW_S)
        else:
            self.end(CutError(f"the server ended the pull: {status} {said}"))

    # --- settlements ---

    def _decide(self, first_tag: int, last_tag: int, said: bytes) -> None:
        if self._cut is not None:
            return
        assert last_tag <= self.last_tag - len(self._waiting), "not delivered"
        now = time.monotonic()
        for tag in range(first_tag, last_tag + 1):
            delivery = self._held.pop(tag)
            self._held_bytes -= delivery.size
            self._settled += 1
            self._unanswered[self._settled] = (delivery, now)
            reply = b"%b %b.a.%d" % (delivery.reply, self._inbox.encode(), self._settled)
            self._due.append(_pub(reply, said))
        self._soon(self._send_due, 0)
        self._soon(self._pull, _FLOW_S)

    def _send_due(self) -> None:
        if self._due and self._cut is None and self._is_sure():
            due, self._due = self._due, []
            self._connection.write(due)

    def _is_sure(self) -> bool:
        """Whether the consumer is the one that delivered the held messages; else asks, and goes on.

        While a pull waits, the server tells of the consumer's end. Without one a stream may have
        been deleted and created again: acknowledgements would then be of new messages with the same
        sequences, which the next pull brings (L30). The server does not apply the two in the order
        in which it gets them.
        """
        if self._asked > 0 or self._looked or time.monotonic() - self._sure_s < _SURE_S:
            return True
        if self._look is None:
            self._look = asyncio.create_task(self._make_sure())
            self._look.add_done_callback(self._go_on)
        return False

    async def _make_sure(self) -> None:
        """Looks at the consumer's creation time. Raises CutError if it is another consumer."""
        _, _, place = self._pulling.subject.partition(".NEXT.")
        until_s = time.monotonic() + LINK_ANSWER_S
        while True:
            asked_s = time.monotonic()
            try:
                found = await self._connection.ask(f"CONSUMER.INFO.{place}", created=str)
                break
            except CutError as cut:
                ended = self._closing or self._cut is not None or time.monotonic() > until_s
                if cut.refusal is not None or ended:
                    raise
                await asyncio.sleep(_AGAIN_S)  # a cluster may be without a leader
        if found["created"] != self._pulling.created:
            raise CutError("the consumer was deleted and created again")
        self._sure_s = asked_s

    def _go_on(self, look: asyncio.Task[None]) -> None:
        """Settles and pulls after a look that found the same consumer; else ends."""
        self._look = None
        if look.cancelled():
            return
        error = look.exception()
        if error is not None:
            self.end(error if isinstance(error, CutError) else CutError(repr(error)))
        self._looked = True
        self._send_due()
        self._pull()
        self._looked = False

    def _take_answer(self, message: Received) -> None:
        if message.headers or message.body:
            said = (message.headers + message.body).decode(errors="replace").strip()
            self.end(CutError(f"an acknowledgement was refused: {said}"))
            return
        found = self._unanswered.pop(int(message.subject.rpartition(b".")[2]), None)
        if found is not None:
            self._in_hand.pop(found[0].sequence, None)
        # Counted up: the first key of a dict is slow to find after many removals before it.
        while self._proven < self._settled and self._proven + 1 not in self._unanswered:
            self._proven += 1
        if not self._unanswered:
            self._answered.set()

    # --- time ---

    def keep_within(self, wait_s: float) -> None:
        """Signs from now on for the time after which a held message is redelivered (L31)."""
        if wait_s != self._pulling.wait_s and self._keep in self._timers and self._cut is None:
            self._pulling = self._pulling._replace(wait_s=wait_s)
            self._timers.pop(self._keep).cancel()
            self._keep()

    def _keep(self) -> None:
        """Signs for what is held that it is in progress (L31)."""
        kept = (*self._held.values(), *self._aside.values())
        self._connection.write(_pub(each.reply, _WPI) for each in kept)
        self._soon(self._keep, self._pulling.wait_s / 3)

    def _watch(self) -> None:
        """Finds pulls that the server forgot, and acknowledgements that it does not answer."""
        now = time.monotonic()
        if self._asked > 0 and now - self._heard_s > _MISSED_BEATS * _BEAT_S:
            self._asked = 0
            self._silent += 1
            self._pull()
        _, sent_s = next(iter(self._unanswered.values()), (None, now))
        if self._silent > 1 or now - sent_s > LINK_ANSWER_S:
            self.end(CutError(f"the server does not answer for '{self._connection.place}'"))
        self._soon(self._watch, _BEAT_S)

    def _soon(self, work: Callable[[], None], seconds: float) -> None:
        """Calls a method after a time, once, however often it is asked for before."""
        if work in self._timers or self._closing or self._cut is not None:
            return

        def call() -> None:
            del self._timers[work]
            work()

        self._timers[work] = asyncio.get_running_loop().call_later(seconds, call)


def _pub(subject: bytes, data: bytes) -> bytes:
    """A frame that publishes; the subject may have a reply after it."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(data), data)


assert CALL_S < LINK_ANSWER_S, "a request of the API fails before an acknowledgement"
