"""A consumer on a channel: random outcomes, resumed after a cut, closed and opened again."""

from ackq.v1 import consuming_pb2
from tests.crash.simulation.clients.client import Client, Ended, Silent
from tests.crash.simulation.clients.wire import rows_of
from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.oracle.history import Hold

OUTCOMES = {"accepted": 1, "failed": 2, "rejected": 3, "released": 4}


class Settlement:
    """A settlement that has no answer yet."""

    def __init__(self, request, operations, messages):
        self.request = request
        self.operations = operations
        self.messages = messages


class Owner:
    """A channel of the broker as a holder of messages; compared by identity."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


class Consumer(Client):
    """Consumes until the world closes.

    Args:
        queues: The queues that it subscribes to.
        weights: Weights of the outcomes, by name.
        no_ack: Consume without acks (C10).
    """

    # After this time without a delivery it settles some of what it holds, and sends a heartbeat.
    quiet_s = 3.0

    def __init__(self, world, oracle, name, queues, weights, *, no_ack=False):
        super().__init__(world, oracle, name)
        self._queues = queues
        self._weights = weights
        self._no_ack = no_ack
        self._channels = 0
        self._begin()

    def _begin(self):
        """Begins another channel; this client no longer holds the previous one's messages."""
        self._channels += 1
        self._channel_id = self.token()
        self._owner = Owner(f"{self.name}#{self._channels}")
        self._instance = b""
        self._begun = self.oracle.now()
        # The last instant at which the broker certainly had this channel.
        self._alive = self._begun
        self._held = {}
        self._arrived = {}
        self._last_tag = 0
        self._number = 0
        self._unanswered = {}
        self._acked_tag = 0
        self._pull = 0
        self._pulling = 0

    @property
    def channel_id(self):
        """Its channel's id, as other users may learn it."""
        return self._channel_id

    @property
    def last_tag(self):
        """Its last delivery tag, as other users may learn it."""
        return self._last_tag

    def _forget(self):
        """Gives the channel up: the broker may have requeued its messages after `_alive`."""
        self.oracle.may_release(self._owner, self._alive)
        self._begin()

    async def work(self):
        try:
            while True:
                try:
                    await self._stream()
                except Cut:
                    if self.sometimes(0.3):
                        self._forget()
                except Refused as refusal:
                    known = ["fenced", "closed"]
                    if self._channel_id in self.oracle.taken:
                        known.append("permission_denied")
                    if refusal.code not in known and not self.excuses(refusal):
                        self.oracle.wrong(f"C2: {self._owner} was closed: {refusal}")
                    self._forget()
                await self.pause(self.pace_s)
        finally:
            self.oracle.may_release(self._owner, self._alive)

    async def _stream(self):
        self._stream_now = stream = self.open("Consume")
        opening = consuming_pb2.ChannelOpen(channel_id=self._channel_id, label=self.name)
        asked = self.oracle.now()
        await self._write(open=opening)
        opened = await self._opened(stream)
        if self._instance and opened.instance != self._instance:
            # Another channel under the same id (C17): the messages of the previous one were
            # requeued.
            channel_id = self._channel_id
            self._forget()
            self._channel_id = channel_id
        elif self._instance:
            self.oracle.check(opened.resumed, f"C11: {self._owner} was resumed and is new")
            self._alive = max(self._alive, asked)
            self.oracle.figures["channels resumed"] += 1
        elif opened.resumed:
            self._last_tag = 0  # the answer to the first open was lost
        first = not self._instance
        self._instance = opened.instance
        if first or opened.resumed:
            await self._again()
        await self._live(stream)

    async def _opened(self, stream):
        while True:
            response = await self.patiently(stream.read())
            if response is None:
                raise Cut("the broker ended the stream")
            if response.header.WhichOneof("kind") == "opened":
                return response.header.opened

    async def _again(self):
        """Sends the subscriptions, and the unanswered settlements again."""
        for number, queue in enumerate(self._queues):
            prefetch = self._prefetch(number)
            await self._write(
                subscribe=consuming_pb2.Subscribe(
                    consumer=f"c{number}",
                    queue=queue,
                    prefetch=prefetch,
                    outcomes=[2, 3, 4],
                    no_ack=self._no_ack,
                    renewed=self._channels > 1,
                )
            )
        for each in self._unanswered.values():
            await self._write(settle=each.request)

    def _prefetch(self, number):
        return 2 + (len(self.name) + number) % 5

    async def _live(self, stream):
        quiet = 0
        while True:
            try:
                response = await self.patiently(stream.read(), self.quiet_s)
            except Silent:
                if self.world.closing:
                    break
                quiet += 1
                self.finished = True
                if quiet * self.quiet_s > 15:  # no heartbeat: the connection is dead
                    raise
                await self._write(heartbeat=consuming_pb2.ChannelHeartbeat())
                await self._busy()
                continue
            if response is None:
                raise Cut("the broker ended the stream")
            quiet = 0
            self._read(response)
            if self.world.closing:
                break
            await self._busy()
            if self.sometimes(0.02):
                break
        await self._close(stream)

    async def _close(self, stream):
        """Half-closes: the broker sends its remaining answers, and requeues unacked messages."""
        asked = self.oracle.now()
        await stream.close_writes()
        while (response := await self.patiently(stream.read())) is not None:
            self._read(response)
        left = len(self._unanswered)
        self.oracle.check(not left, f"C15: {self._owner} ended with {left} without answer")
        self._alive = asked
        self._forget()
        if self.world.closing:
            raise Ended

    async def _busy(self):
        """Settles some of the messages that it holds."""
        self.trip(0.03)
        if self.sometimes(0.3):
            await self.world.sleep(self.rng.random() * self.pace_s / 2)
        while self._held and self.sometimes(0.7):
            await self._settle()
        if self._last_tag > self._acked_tag and self.sometimes(0.5):
            self._acked_tag = self._last_tag
            ack = consuming_pb2.TransportAck(delivery_tag=self._last_tag)
            await self._write(transport_ack=ack)
        if not self._no_ack and self._queues and self.sometimes(0.05):
            self._pull += 1
            get = consuming_pb2.Get(
                queue=self.rng.choice(self._queues), messages=2, number=self._pull
            )
            await self._write(get=get)

    async def _settle(self):
        names, weights = zip(*self._weights.items(), strict=True)
        outcome = self.rng.choices(names, weights)[0]
        delay_ms = 0
        if outcome == "released" and self.sometimes(0.3):
            delay_ms = 300
        held = sorted(self._held)
        multiple = self.sometimes(0.2)
        if multiple:
            at = self.rng.randrange(len(held))
            tags = held[: at + 1]
        else:
            tags = [self.rng.choice(held)]
        self._number += 1
        request = consuming_pb2.Settle(
            delivery_tag=tags[-1],
            multiple=multiple,
            outcome=OUTCOMES[outcome],
            reason=f"{outcome} by {self.name}" if outcome in ("failed", "rejected") else "",
            delay_ms=delay_ms,
            number=self._number,
        )
        messages = [self._held.pop(tag) for tag in tags]
        holds = [Hold(self._owner, tag) for tag in tags]
        known = "later" if delay_ms else outcome
        operations = self.oracle.settle(messages, holds, known)
        self._unanswered[self._number] = Settlement(request, operations, messages)
        await self._write(settle=request)

    def _read(self, response):
        header = response.header
        kind = header.WhichOneof("kind")
        if kind == "delivery":
            for row in rows_of(header.delivery.runs, response.block):
                self._deliver(row)
        elif kind == "settled":
            self._settled(header.settled)
        elif kind == "cancelled":
            code = header.cancelled.reason.code
            self.oracle.check(code == "queue_not_found", f"C12: {self._owner} cancelled: {code}")
        else:
            assert kind in ("heartbeat", "get_empty"), header

    def _deliver(self, row):
        known = self._arrived.get(row.tag)
        if known is not None:
            # Without a transport ack a delivery is repeated, under the same tag (C11).
            self.oracle.check(
                known == (row.name, row.count), f"C11: tag {row.tag} was {known}, and is {row}"
            )
            return
        self.oracle.check(
            row.tag == self._last_tag + 1 or not self._last_tag,
            f"C1: {self._owner}: tag {row.tag} follows {self._last_tag}",
        )
        self._last_tag = row.tag
        self._arrived[row.tag] = (row.name, row.count)
        hold = None if self._no_ack else Hold(self._owner, row.tag)
        message = self.oracle.delivered(row, row.queue, hold, self._begun)
        if message is not None and not self._no_ack:
            self._held[row.tag] = message

    def _settled(self, answer):
        each = self._unanswered.pop(answer.number, None)
        if each is None:
            self.oracle.wrong(f"C15: {self._owner}: settlement {answer.number} answered twice")
            return
        self.oracle.check(
            answer.settled == len(each.operations),
            f"C3: {self._owner}: {answer.settled} settled of {len(each.operations)}",
        )
        instant = self.oracle.now()
        self.oracle.figures["settlements"] += 1
        for operation in each.operations:
            operation.done(instant)
            self._alive = max(self._alive, operation.call)

    async def _write(self, **kind):
        await self.send(self._stream_now, consuming_pb2.ConsumeRequest(**kind))
