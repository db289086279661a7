"""A publisher in confirm mode, by the client's own state machine.

`ConfirmState` says what is sent, what goes again after a cut, and what an answer ends. This process
does what its stream does, with chance in it, and reports to the oracle.
"""

import asyncio

from ackq.client.blocks.encoding import Row
from ackq.client.connection.duplex import Wait
from ackq.client.publishing import requests
from ackq.client.publishing.confirm_state import ConfirmState, PublishSettings
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.requests import Probe
from ackq.client.publishing.unconfirmed import Destination
from ackq.client.ranges import Range
from ackq.errors import InternalError, UnroutableError
from ackq.v1 import publishing_pb2
from tests.crash.simulation.clients.client import Client, Silent
from tests.crash.simulation.clients.wire import Encoded, body_of
from tests.crash.simulation.network import Cut, Refused

CONFIRM = 1
PERSISTENT = 1
# A window that is sometimes full, and the time after which an answer is asked for (P10).
SETTINGS = PublishSettings(
    persistent=True, window_messages=30, window_bytes=1 << 20, linger_s=0.0, ack_timeout_s=2.0
)
_BEAT_S = 0.25
_TEXTS = (None,) * 6  # the fields of a row from its message id to its time


class Publisher(Client):
    """Publishes a number of messages to routes, each of them at least until it has an answer.

    Args:
        routes: (exchange, routing key, the queues that it leads to).
        count: Messages in all.
        ttl_ms: Time to live of some of them.
        transient: Share of messages that are not persistent.
        singly: Whether each message is a frame of its own, without times to live, and all such
            publishers send at the same times.
    """

    def __init__(
        self, world, oracle, name, routes, count, *, ttl_ms=0, transient=0.1, singly=False
    ):
        super().__init__(world, oracle, name)
        self._routes = routes
        self._left = count
        self._ttl_ms = ttl_ms
        self._transient = transient
        self._singly = singly
        self._made = 0
        self._copied = False
        self._attempts = []
        self._begin()

    def copy_of(self, other):
        """This process is a copy of another one: it has its id, and counts from 1 as well."""
        self._id = other._id
        self._copied = other._copied = True

    def opening(self):
        """An opening of its publisher, with what others may learn of it."""
        return publishing_pb2.PublishOpen(publisher_id=self._id, mode=CONFIRM, resume=self._known)

    @property
    def coming(self):
        """The numbers that may come next: the last one that has no answer, and a new one."""
        return [*sorted(self._pending)[-1:], self._number + 1]

    def _begin(self):
        """A publisher of its own, which the broker does not know."""
        self._id = self.token()
        self._known = False
        self._state = ConfirmState(SETTINGS)
        self._number = 0
        self._pending = {}  # the copies of each publish without an answer, by its number
        self._sent = set()
        self._order = f"{self.name}/{self._id.hex()[:6]}"

    async def work(self):
        while self._left or self._pending:
            try:
                await self._stream()
            except Cut:
                pass
            except Refused as refusal:
                own = refusal.fields.get("attempt") in self._attempts
                if self._copied and (
                    refusal.code == "publisher_forgotten" or (refusal.code == "fenced" and not own)
                ):
                    self._begin()  # what is unanswered has an unknown outcome (P10)
                elif refusal.code in ("publisher_forgotten", "history_changed"):
                    self.oracle.wrong(f"P10: {self.name} was forgotten: {refusal}")
                    self._begin()
                elif not own and not self.excuses(refusal):
                    self.oracle.wrong(f"P3: the stream of {self.name} ended: {refusal}")
            await self.pause()

    # --- what is sent ---

    async def _stream(self):
        state = self._state
        state.on_disconnect()
        self._stream_now = stream = self.open("Publish")
        await self._write(self._opening_frame())
        answer = (await self.patiently(stream.read())).header
        assert answer.WhichOneof("kind") == "opened", answer
        self._known = True
        state.on_opened()
        self._on_stream = set()
        self._probed = range(0)
        while self._left or self._pending:
            if self._left and len(self._pending) < 12 and self.sometimes(0.6):
                if self._singly:
                    await self.world.sleep(_BEAT_S - self.world.now_s() % _BEAT_S)
                self._publish()
            action = state.next_action(_now())
            if not isinstance(action, Wait):
                await self._send(action)
            elif self._pending:
                await self._read(action.until)
            self.oracle.check(
                state.pending == len(self._pending),
                f"P3: {self.name} counts {state.pending} unanswered of {len(self._pending)}",
            )
            if self.sometimes(0.4):
                await self.pause(self.pace_s)
            self.trip(0.02)
        if self.sometimes(0.5):
            state.finishing = True
            await self._write(requests.encoded(state.next_action(_now())))
        await stream.close_writes()

    def _opening_frame(self):
        attempt = f"{self.name}/{len(self._attempts)}".encode()[:16]
        before = [bytes.fromhex(each) for each in self._attempts]
        self._attempts.append(attempt.hex())
        return requests.opening(
            self._id,
            mode=CONFIRM,
            resume=self._known,
            attempt=attempt,
            attempts_before=before,
            next_number=self._state.next_number,
            lowest_unanswered=self._state.lowest_unanswered,
            window_messages=self._state.window_messages,
            label="",
        )

    async def _write(self, frame):
        await self.send(self._stream_now, Encoded(frame))

    def _publish(self):
        exchange, key, queues = self.rng.choice(self._routes)
        plain = self._singly or self.sometimes(0.3)
        destination = Destination(exchange, mandatory=True, ack_immediately=self.sometimes(0.1))
        for _ in range(min(self._left, 1 if self._singly else self.rng.choice((1, 1, 2, 4)))):
            self._left -= 1
            self._made += 1
            self._number += 1
            persistent = plain or not self.sometimes(self._transient)
            ttl_ms = self._ttl_ms if not plain and self.sometimes(0.4) else 0
            name = f"{self.name}.{self._made}"
            body = body_of(name, self.rng.choice((0, 20, 100, 100, 1500)))
            group = f"{name} to {len(queues)} queues" if len(queues) > 1 else None
            self._pending[self._number] = [
                self.oracle.publish(
                    name,
                    body,
                    queue,
                    order=(self._order, self._number) if persistent else None,
                    persistent=persistent,
                    ttl_ms=ttl_ms,
                    group=group,
                )
                for queue in queues
            ]
            row = Row(body, key, *_TEXTS, None if plain else persistent, ttl_ms or None)
            size = len(body) + len(key)
            self._state.append(destination, row, size, ConfirmationFuture(), _now())
        if self._singly or self.sometimes(0.5):
            self._state.close_draft()

    async def _send(self, action):
        if isinstance(action, Probe):
            if not self.sometimes(0.5):
                raise Silent("no answer within the timeout of a publish")
            first, last = action.numbers
            self._probed = range(min(first, self._probed.start or first), last + 1)
        else:
            numbers = range(action.part.numbers.first, action.part.numbers.last + 1)
            for number in numbers:
                if number in self._sent and number in self._pending:
                    self._comes_again(self._pending[number])
            self._sent.update(numbers)
            self._on_stream.update(numbers)
        await self._write(requests.encoded(action))

    def _comes_again(self, copies):
        disk_was_full = any(fault.kind in ("full", "room") for _, fault in self.world.faults)
        if disk_was_full or any(copy.queue.max_length for copy in copies):
            for copy in copies:
                copy.order = None  # placed behind later ones, if it was nacked before (P10)

    # --- what is answered ---

    async def _read(self, until):
        """One answer, or the end of a wait."""
        wait_s = SETTINGS.ack_timeout_s if until is None else max(until - _now(), 0.0)
        try:
            response = await self.patiently(self._stream_now.read(), wait_s)
        except Silent:
            if until is None and self.sometimes(0.5):
                raise
            return
        if response is None:
            raise Cut("the broker ended the stream")
        try:
            self._answer(response.header)
        except InternalError as error:
            self.oracle.wrong(f"P3: {self.name}: {error.message}")

    def _answer(self, answer):
        kind = answer.WhichOneof("kind")
        if kind == "confirm":
            self._confirm(answer.confirm)
        elif kind == "nack":
            self._nack(answer.nack)
        elif kind == "returned":
            numbers = answer.returned.numbers
            self._state.on_return(numbers, UnroutableError("No queue."))
            for number in numbers:
                for copy in self._pending.get(number, ()):
                    copy.order = None  # placed later, if its confirm is lost (P10)
        elif kind == "probed":
            ranges = zip(answer.probed.missing_first, answer.probed.missing_last, strict=True)
            self._state.on_probed([Range(*each) for each in ranges])
        elif kind == "blocked":
            self._state.on_blocked(answer.blocked.reason)
        else:
            assert kind == "unblocked", kind
            self._state.on_unblocked()

    def _confirm(self, confirm):
        first, last = confirm.first_number, confirm.last_number
        if confirm.multiple:
            named = [n for n in self._pending if n <= last]
            early = [n for n in named if n not in self._on_stream]
            self.oracle.check(not early, f"P2: {self.name}: {early} confirmed and not received")
        else:
            named = list(range(first, last + 1))
        answered = self._state.on_confirm(first, last, multiple=confirm.multiple)
        self._answered(named, answered, "confirmed")

    def _nack(self, nack):
        named = list(range(nack.first_number, nack.last_number + 1))
        if nack.reason.code not in ("queue_full", "disk_full", "queue_not_found", "limit"):
            self.oracle.wrong(f"P8: {self.name}: {named} nacked: {nack.reason.message}")
        answered = self._state.on_nack(nack.first_number, nack.last_number)
        self._answered(named, answered, "nacked")

    def _answered(self, named, answered, how):
        ended = {n for each in answered for n in range(each.numbers.first, each.numbers.last + 1)}
        returned = {n for each in answered for n in self._state.take_returns(each.numbers)}
        for number in sorted(ended.union(named)):
            copies = self._pending.pop(number, None)
            if copies is None and how == "confirmed" and number in self._probed:
                continue  # a probe asks for the answers of its range again (P10)
            if copies is None or number not in ended:
                self.oracle.wrong(f"P3: {self.name}: {number} was {how}, and has an answer")
                continue
            for copy in copies:
                if how == "nacked" or number in returned:
                    self.oracle.refused(copy)
                else:
                    self.oracle.confirmed(copy)


def _now():
    return asyncio.get_running_loop().time()
