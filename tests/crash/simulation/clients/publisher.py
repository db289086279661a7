"""A publisher in confirm mode: pipelined frames, and after a cut everything unanswered again."""

from ackq.v1 import messages_pb2, publishing_pb2
from tests.crash.simulation.clients.client import Client, Silent
from tests.crash.simulation.clients.wire import body_of, encoded
from tests.crash.simulation.network import Cut, Refused

CONFIRM = 1
PERSISTENT, TRANSIENT = 1, 2


class Pending:
    """A publish without an answer: its copies, one for each queue that it goes to."""

    def __init__(self, copies, key, exchange, mode, ttl_ms, body):
        self.copies = copies
        self.key = key
        self.exchange = exchange
        self.mode = mode
        self.ttl_ms = ttl_ms
        self.body = body
        self.returned = False


class Publisher(Client):
    """Publishes a number of messages to routes, each of them at least until it has an answer.

    Args:
        routes: (exchange, routing key, the queues that it leads to).
        count: Messages in all.
        ttl_ms: Time to live of some of them.
        transient: Share of messages that are not persistent.
    """

    def __init__(self, world, oracle, name, routes, count, *, ttl_ms=0, transient=0.1):
        super().__init__(world, oracle, name)
        self._routes = routes
        self._left = count
        self._ttl_ms = ttl_ms
        self._transient = transient
        self._made = 0
        self._copied = False
        self._attempts = []
        self._anew()

    def copy_of(self, other):
        """This process is a copy of another one: it has its id, and counts from 1 as well."""
        self._id = other._id
        self._copied = other._copied = True

    def opening(self, **fields):
        """An opening of its publisher, with what others may learn of it."""
        return publishing_pb2.PublishOpen(
            publisher_id=self._id, mode=CONFIRM, resume=self._known, **fields
        )

    @property
    def coming(self):
        """The numbers that may come next: the last one that has no answer, and a new one."""
        return [*sorted(self._pending)[-1:], self._number + 1]

    def _anew(self):
        self._id = self.token()
        self._known = False
        self._number = 0
        self._pending = {}
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
                    self._anew()  # what is unanswered has an unknown outcome (P10)
                elif refusal.code in ("publisher_forgotten", "history_changed"):
                    self.oracle.wrong(f"P10: {self.name} was forgotten: {refusal}")
                    self._anew()
                elif not own and not self.excuses(refusal):
                    self.oracle.wrong(f"P3: the stream of {self.name} ended: {refusal}")
            await self.pause()

    async def _stream(self):
        self._stream_now = stream = self.open("Publish")
        attempt = f"{self.name}/{len(self._attempts)}".encode()[:16]
        self._attempts.append(attempt.hex())
        opening = self.opening(
            window_messages=30,
            attempt=attempt,
            next_number=self._number + 1,
            attempts_before=map(bytes.fromhex, self._attempts[:-1]),
        )
        await self._write(open=opening)
        answer = (await self.patiently(stream.read())).header
        assert answer.WhichOneof("kind") == "opened", answer
        self._known = True
        self._on_stream = set()
        self._probed = range(0)
        self._unsent = list(self._pending)
        for each in self._pending.values():
            each.returned = False
        while self._left or self._pending:
            if self._unsent:
                await self._send_again()
            elif self._left and len(self._pending) < 12 and self.sometimes(0.6):
                await self._send_new()
            elif self._pending:
                await self._read()
            if self.sometimes(0.4):
                await self.pause(self.pace_s)
            self.trip(0.02)
        if self.sometimes(0.5):
            await self._write(close=publishing_pb2.PublishClose())
        await stream.close_writes()

    async def _write(self, block=b"", **kind):
        lowest = min(self._pending, default=self._number + 1)
        header = publishing_pb2.PublishHeader(lowest_unanswered=lowest, **kind)
        await self.send(self._stream_now, publishing_pb2.PublishRequest(header=header, block=block))

    async def _send_new(self):
        exchange, key, queues = self.rng.choice(self._routes)
        numbers = []
        in_block = self.sometimes(0.3)
        for _ in range(min(self._left, self.rng.choice((1, 1, 2, 4)))):
            self._left -= 1
            self._made += 1
            self._number += 1
            mode = TRANSIENT if not in_block and self.sometimes(self._transient) else PERSISTENT
            ttl_ms = self._ttl_ms if not in_block and self.sometimes(0.4) else 0
            name = f"{self.name}.{self._made}"
            body = body_of(name, self.rng.choice((0, 20, 100, 100, 1500)))
            group = f"{name} to {len(queues)} queues" if len(queues) > 1 else None
            order = (self._order, self._number) if mode == PERSISTENT else None
            copies = [
                self.oracle.publish(
                    name,
                    body,
                    queue,
                    order=order,
                    persistent=mode == PERSISTENT,
                    ttl_ms=ttl_ms,
                    group=group,
                )
                for queue in queues
            ]
            self._pending[self._number] = Pending(copies, key, exchange, mode, ttl_ms, body)
            numbers.append(self._number)
        await self._send(numbers, in_block=in_block)

    async def _send_again(self):
        """The longest run of numbers with one exchange, up to a few."""
        numbers = [self._unsent.pop(0)]
        exchange = self._pending[numbers[0]].exchange
        while (
            self._unsent
            and len(numbers) < 5
            and self._unsent[0] == numbers[-1] + 1
            and self._pending[self._unsent[0]].exchange == exchange
        ):
            numbers.append(self._unsent.pop(0))
        for number in numbers:
            copies = self._pending[number].copies
            if self._disk_was_full() or any(copy.queue.max_length for copy in copies):
                for copy in copies:
                    copy.order = None  # placed behind later ones, if it was nacked before (P10)
        await self._send(numbers, in_block=False)

    def _disk_was_full(self):
        return any(fault.kind in ("full", "room") for _, fault in self.world.faults)

    async def _send(self, numbers, *, in_block):
        each = [self._pending[number] for number in numbers]
        data = publishing_pb2.PublishData(
            first_number=numbers[0],
            rows=len(numbers),
            exchange=each[0].exchange,
            mandatory=True,
            ack_immediately=self.sometimes(0.1),
        )
        block = b""
        if in_block:
            block = encoded([one.body for one in each], each[0].key)
        else:
            data.messages.extend(
                messages_pb2.Message(
                    body=one.body, routing_key=one.key, delivery_mode=one.mode, ttl_ms=one.ttl_ms
                )
                for one in each
            )
        self._on_stream.update(numbers)
        await self._write(block, data=data)

    async def _read(self):
        """One answer; none for two seconds is asked for by a probe (P10)."""
        try:
            response = await self.patiently(self._stream_now.read(), 2.0)
        except Silent:
            if not self.sometimes(0.5):
                raise
            await self._probe()
            return
        if response is None:
            raise Cut("the broker ended the stream")
        self._answer(response.header)

    async def _probe(self):
        first, last = min(self._pending), max(self._pending)
        self._probed = range(min(first, self._probed.start or first), last + 1)
        await self._write(probe=publishing_pb2.PublishProbe(first_number=first, last_number=last))

    def _answer(self, answer):
        kind = answer.WhichOneof("kind")
        if kind == "confirm":
            self._confirm(answer.confirm)
        elif kind == "nack":
            self._nack(answer.nack)
        elif kind == "returned":
            for number in answer.returned.numbers:
                if number in self._pending:
                    self._pending[number].returned = True
                    for copy in self._pending[number].copies:
                        copy.order = None  # placed later, if its confirm is lost (P10)
        elif kind == "probed":
            ranges = zip(answer.probed.missing_first, answer.probed.missing_last, strict=True)
            missing = {n for first, last in ranges for n in range(first, last + 1)}
            self._unsent = sorted(missing & set(self._pending))
        else:
            assert kind in ("blocked", "unblocked"), kind

    def _confirm(self, confirm):
        if confirm.multiple:
            named = [n for n in self._pending if n <= confirm.last_number]
            early = [n for n in named if n not in self._on_stream]
            self.oracle.check(not early, f"P2: {self.name}: {early} confirmed and not received")
        else:
            named = list(range(confirm.first_number, confirm.last_number + 1))
        self._answered(named, "confirmed")

    def _nack(self, nack):
        named = list(range(nack.first_number, nack.last_number + 1))
        if nack.reason.code not in ("queue_full", "disk_full", "queue_not_found", "limit"):
            self.oracle.wrong(f"P8: {self.name}: {named} nacked: {nack.reason.message}")
        self._answered(named, "nacked")

    def _answered(self, numbers, how):
        for number in numbers:
            pending = self._pending.pop(number, None)
            if pending is None and how == "confirmed" and number in self._probed:
                continue  # a probe asks for the answers of its range again (P10)
            if pending is None:
                self.oracle.wrong(f"P3: {self.name}: {number} was {how}, and has an answer")
                continue
            for copy in pending.copies:
                if how == "nacked" or pending.returned:
                    self.oracle.refused(copy)
                else:
                    self.oracle.confirmed(copy)
