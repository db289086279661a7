"""Consumes a queue by AMQP 1.0. Rules L8, L10, L12, L17, L19.

Invariant: settlements are sent in the order of the calls, and credit is only given for the free
room in the window, so the broker never sends more messages than fit in it.

A delivery counts as proven (L10) when the broker reports that it has settled it, where the broker
answers settlements (receiver settle mode `second`, Qpid); else when the broker has answered a ping
that was sent after the settlement (Artemis): it processes the frames of a connection in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from proton import Delivery, Link, Receiver

from ackq_link.adapter import CutError, Deliveries, Limits, QueueLimits, Remaining
from ackq_link.amqp1.address import Amqp1Address
from ackq_link.amqp1.connection import Amqp1Connection, connect
from ackq_link.amqp1.management import queue_limits
from ackq_link.amqp1.messages import Incoming, to_rows

# Settlements are sent after this delay, or when this part of the window waits for one.
ACK_DELAY_S: Final = 0.05
_PART: Final = 4
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 8 << 20
_CLOSE_S: Final = 5.0
# Seconds between pings.
_PROOF_S: Final = 1.0
# Outcomes with which a broker refuses an acknowledgement.
_NOT_ACCEPTED: Final = {Delivery.RELEASED, Delivery.MODIFIED, Delivery.REJECTED}


@dataclass(frozen=True, slots=True)
class Amqp1Source:
    """A queue of an AMQP 1.0 broker as the source of a link.

    Args:
        address: The broker.
        queue: The queue's address, which must exist.
        name: The link's name.
        limits: `window_messages` is the most credit, from 1 to 65535.
        told: The limits that the user set.
    """

    address: Amqp1Address
    queue: str
    name: str
    limits: Limits
    told: QueueLimits = field(default_factory=QueueLimits)

    @property
    def identity(self) -> str:
        """The protocol, host, port, virtual host and queue, without credentials (L1)."""
        address = self.address
        place = f"{address.host}:{address.port}/{address.virtual_host}"
        return f"amqp1://{place}, queue {self.queue}"

    async def learn(self) -> QueueLimits:
        """Learns the limits of the queue; those that the user set override the broker's (L14).

        Raises:
            CutError: The broker is away; or, with a refusal, the queue does not exist.
        """
        connection = await connect(self.address, self.name, self.queue)
        try:
            await connection.receive(self.queue)
            learnt = await queue_limits(connection, self.queue)
        finally:
            await connection.close()
        return learnt.overridden(self.told)

    async def subscribe(self) -> Amqp1Subscription:
        """Connects and attaches. Raises CutError, with a refusal if a retry cannot mend it."""
        connection = await connect(self.address, self.name, self.queue)
        try:
            receiver = await connection.receive(self.queue)
        except BaseException:
            await connection.close()
            raise
        return Amqp1Subscription(connection, receiver, self.limits)


class Amqp1Subscription:
    """Deliveries and settlements of one receiving link on one connection."""

    def __init__(self, connection: Amqp1Connection, receiver: Receiver, limits: Limits) -> None:
        self._connection = connection
        self._receiver = receiver
        self._limits = limits
        self._answers = receiver.remote_rcv_settle_mode == Link.RCV_SECOND
        self._messages: deque[bytes] = deque()
        # Unsettled deliveries by tag, each with the size of its message.
        self._held: dict[int, tuple[Delivery, int]] = {}
        self._held_bytes = 0
        self._received_bytes = 0
        self.last_tag = 0
        self._due: list[tuple[Delivery, int]] = []
        # Settled deliveries that the broker has not answered yet, in the order of settlement.
        self._unanswered: deque[Delivery] = deque()
        self._settled = 0
        self._proven = 0
        self._stopped = False
        self._closing = False
        self._cut: CutError | None = None
        self._arrived = asyncio.Event()
        self._all_proven = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._proof: asyncio.TimerHandle | None = None
        connection.on_deliveries = self._on_deliveries
        connection.on_end = self._on_end
        if connection.cut is not None:
            self._on_end(connection.cut)
        self._give_credit()
        connection.flush()

    @property
    def proven(self) -> int:
        """The number of deliveries, in the order of settlement, proven to be settled (L10)."""
        return self._proven

    async def deliver(self) -> Deliveries:
        """The deliveries that have come, up to a batch; waits for the first. Raises CutError."""
        while True:
            if self._cut is not None:
                raise self._cut
            if self._messages:
                return self._taken()
            self._arrived.clear()
            await self._arrived.wait()

    def settle(self, first_tag: int, last_tag: int) -> None:
        """Accepts deliveries, at most every 50 ms or quarter of the window (L12)."""
        self._decide(first_tag, last_tag, Delivery.ACCEPTED)

    def reject(self, first_tag: int, last_tag: int) -> None:
        """Rejects deliveries, in one order with `settle`."""
        self._decide(first_tag, last_tag, Delivery.REJECTED)

    @property
    def window_messages(self) -> int:
        """The window in messages, as its limits say."""
        return self._limits.window_messages

    async def remaining(self) -> Remaining | None:
        """Always None: AMQP 1.0 has no such query, and requeued messages are not marked (L18)."""
        return None

    async def close(self, *, requeue: bool = False) -> None:
        """Sends the last settlements, waits a limited time for their proof, and closes.

        Args:
            requeue: Release the held deliveries, which counts as no delivery (L15).
        """
        self._closing = True
        if self._cut is None:
            if requeue:
                for delivery, _ in self._held.values():
                    delivery.update(Delivery.RELEASED)
                    delivery.settle()
            self._send_due()
            self._stop_timers()
            self._all_proven.clear()
            self._prove()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    while self._proven < self._settled and self._connection.cut is None:
                        await self._all_proven.wait()
                        self._all_proven.clear()
        self._stop_timers()
        await self._connection.close()

    # --- deliveries ---

    def _on_deliveries(self, deliveries: list[Delivery]) -> None:
        receiver = self._receiver
        for delivery in deliveries:
            if delivery.aborted:
                receiver.advance()
                delivery.settle()
            elif delivery.readable and not delivery.partial:
                message = bytes(receiver.recv(delivery.pending) or b"")
                receiver.advance()
                self.last_tag += 1
                size = len(message)
                self._held[self.last_tag] = (delivery, size)
                self._held_bytes += size
                self._received_bytes += size
                self._messages.append(message)
            elif _is_taken_back(delivery) and not self._closing:
                self._on_end(CutError("the broker took back a message that it had delivered"))
                return
        if self._messages:
            self._arrived.set()
        self._take_answers()
        self._give_credit()

    def _taken(self) -> Deliveries:
        """Moves the first waiting messages, at most a batch, into columns."""
        first = self.last_tag - len(self._messages) + 1
        messages: list[Incoming] = []
        size = 0
        while self._messages and len(messages) < _BATCH_ROWS:
            size += len(self._messages[0])
            if messages and size > _BATCH_BYTES:
                break
            messages.append(Incoming(self._messages.popleft()))
        counts = [each.delivery_count for each in messages]
        changing = any(each.headers is not each.lasting for each in messages)
        return Deliveries(
            to_rows(messages),
            first,
            [count > 0 for count in counts],
            sum(len(each.body) for each in messages),
            counts,
            lasting=to_rows(messages, lasting=True) if changing else None,
            unmarked=True,
        )

    # --- settlements ---

    def set_aside(self, tag: int) -> None:
        """Leaves a delivery unsettled, outside the window (L29)."""
        _, size = self._held.pop(tag)
        self._held_bytes -= size
        self._give_credit()
        self._connection.flush()

    def _decide(self, first_tag: int, last_tag: int, state: int) -> None:
        if self._cut is not None:
            return
        handed_out = self.last_tag - len(self._messages)
        assert 1 <= first_tag <= last_tag <= handed_out, "not delivered"
        for tag in range(first_tag, last_tag + 1):
            delivery, size = self._held.pop(tag)
            self._held_bytes -= size
            self._due.append((delivery, state))
        if len(self._due) * _PART >= self._limits.window_messages:
            self._send_due()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ACK_DELAY_S, self._send_due)

    def _send_due(self) -> None:
        """Sends the waiting settlements, and gives credit for them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = self._due, []
        for delivery, state in due:
            delivery.update(state)
            if self._answers:
                self._unanswered.append(delivery)
            else:
                delivery.settle()
        self._settled += len(due)
        self._give_credit()
        self._connection.flush()
        if due and not self._answers:
            self._prove_in(_PROOF_S)

    def _take_answers(self) -> None:
        while self._unanswered and self._unanswered[0].settled:
            self._unanswered.popleft().settle()
            self._proven += 1
            self._all_proven.set()

    def _prove(self) -> None:
        """Pings to prove the settlements so far, if the broker does not answer settlements."""
        self._proof = None
        settled = self._settled

        def on_pong() -> None:
            self._proven = settled
            self._all_proven.set()
            if self._settled > settled:
                self._prove_in(_PROOF_S)

        if self._answers or settled == self._proven:
            return
        if not self._connection.ping(on_pong):  # one is on its way
            self._prove_in(ACK_DELAY_S)

    def _prove_in(self, seconds: float) -> None:
        if self._proof is None and self._cut is None:
            seconds = min(seconds, ACK_DELAY_S) if self._closing else seconds
            self._proof = asyncio.get_running_loop().call_later(seconds, self._prove)

    # --- window ---

    def _give_credit(self) -> None:
        """Gives credit for the window's free room: none at its bytes, again at half of them."""
        if self._closing:
            return
        limits, receiver = self._limits, self._receiver
        credit = receiver.credit
        if self._held_bytes >= limits.window_bytes:
            self._stopped = True
            if credit > 0:
                receiver.flow(-credit)
            return
        if self._stopped and self._held_bytes > limits.window_bytes // 2:
            return
        self._stopped = False
        room = limits.window_messages - len(self._held)
        if self.last_tag:
            mean = max(1, self._received_bytes // self.last_tag)
            room = min(room, max(1, (limits.window_bytes - self._held_bytes) // mean))
        if room - credit >= max(1, limits.window_messages // _PART) or (credit <= 0 < room):
            receiver.flow(room - credit)

    # --- the end ---

    def _on_end(self, cut: CutError) -> None:
        if self._cut is None:
            self._cut = cut
            self._stop_timers()
            self._arrived.set()
            self._all_proven.set()

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._proof):
            if timer is not None:
                timer.cancel()
        self._timer = self._proof = None


def _is_taken_back(delivery: Delivery) -> bool:
    """Whether the broker settled a delivery of which the link said nothing, or not as accepted."""
    if not delivery.settled:
        return False
    said = delivery.local_state
    return not said or (said == Delivery.ACCEPTED and delivery.remote_state in _NOT_ACCEPTED)
