"""A consumer on a channel, by the client's own state machine.

`ChannelState` says what is sent, what goes again after a cut, and what an answer ends. This process
does what its stream and its application do, with chance in it, and reports to the oracle.
"""

import asyncio

from ackq.client.connection import errors
from ackq.client.connection.duplex import Finish, Lost, Wait
from ackq.client.consuming.state import ChannelSettings, ChannelState
from ackq.client.outcomes import When
from ackq.client.ranges import Range
from ackq.errors import InternalError
from ackq.outcomes import ACCEPT, Disposition, Outcome
from ackq.v1 import consuming_pb2
from tests.crash.simulation.clients.client import Client, Ended, Silent
from tests.crash.simulation.clients.wire import rows_of
from tests.crash.simulation.network import Cut, Refused
from tests.crash.simulation.oracle.history import Hold

OUTCOMES = {"accepted": 1, "failed": 2, "rejected": 3, "released": 4}


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

    # After this time without a delivery its work counts as done.
    quiet_s = 3.0
    # Its transport window is one of these (C11).
    windows = (8, 50)
    # The chance that it cuts its connection after a settlement.
    cuts = 0.03

    def __init__(self, world, oracle, name, queues, weights, *, no_ack=False):
        super().__init__(world, oracle, name)
        self._queues = queues
        self._weights = weights
        self._no_ack = no_ack
        self._channels = 0
        self._begin()

    def _begin(self):
        """Begins another channel; this client no longer holds the previous one's messages."""
        self._channel_id = self.token()
        self._instance = b""
        self._subscriptions = []
        window = self.rng.choice(self.windows)
        self._state = ChannelState(ChannelSettings(window, 50, transport_ack_delay_s=0.5))
        self._last_tag = 0
        self._own()

    def _own(self):
        """Counts from now on as the holder of a new channel of the broker."""
        self._channels += 1
        self._owner = Owner(f"{self.name}#{self._channels}")
        self._begun = self.oracle.now()
        # The last instant at which the broker certainly had this channel.
        self._alive = self._begun
        self._arrived = {}  # name and count of each delivery, by tag
        self._unread = {}  # the message of each tag that the application has not taken
        self._held = {}  # ... and that it has taken and not settled
        self._unanswered = {}  # operations of settlements without an answer, by tag
        self._answered = set()  # numbers of answered settlements

    @property
    def channel_id(self):
        """Its channel's id, as other users may learn it."""
        return self._channel_id

    @property
    def last_tag(self):
        """Its last delivery tag, as other users may learn it."""
        return self._last_tag - self._state.unsettled.void

    def _give_back(self, settlements):
        """The broker may have requeued its messages after `_alive`; `settlements` had no answer."""
        for each in settlements:
            operations = [self._unanswered.pop(tag) for tag in _tags(each.runs)]
            if not each.sent:
                self.oracle.undo(operations)
        self.oracle.check(
            not self._unanswered, f"C15: {self._owner} forgot settlements: {self._unanswered}"
        )
        self.oracle.may_release(self._owner, self._alive)

    def _forget(self):
        """Gives the channel up, and begins another."""
        self._give_back(self._state.unsettled.drain())
        self._begin()

    def _renew(self, opened):
        """Goes on with a new channel of the broker (C17)."""
        self._give_back(self._state.renew(opened, _now()))
        self._last_tag = self._state.unsettled.void
        self._own()
        self.oracle.figures["channels renewed"] += 1

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

    # --- the stream ---

    async def _stream(self):
        state = self._state
        state.on_disconnect(_now())
        state.on_frame(_now())
        self._stream_now = stream = self.open("Consume")
        asked = self.oracle.now()
        opening = consuming_pb2.ChannelOpen(
            channel_id=self._channel_id,
            label=self.name,
            window_messages=state.settings.window_messages,
        )
        await self._write(consuming_pb2.ConsumeRequest(open=opening))
        opened = await self._opened(stream)
        if not state.on_opened(opened, _now()):
            self.oracle.check(
                opened.instance != self._instance, f"C11: {self._owner} was resumed and is new"
            )
            self._renew(opened)
        elif self._instance:
            self._alive = max(self._alive, asked)
            self.oracle.figures["channels resumed"] += 1
        self._instance = opened.instance
        self._delivered_at = _now()
        if not self._subscriptions:
            self._subscribe()
        await self._live(stream)

    async def _opened(self, stream):
        while True:
            response = await self.patiently(stream.read())
            if response is None:
                raise Cut("the broker ended the stream")
            if response.header.WhichOneof("kind") == "opened":
                return response.header.opened

    def _subscribe(self):
        for number, queue in enumerate(self._queues):
            self._subscriptions.append(
                self._state.subscribe(
                    queue,
                    prefetch=self._prefetch(number),
                    outcomes=frozenset(Outcome),
                    no_ack=self._no_ack,
                )
            )

    def _prefetch(self, number):
        return 2 + (len(self.name) + number) % 5

    async def _live(self, stream):
        while True:
            action = await self._send()
            if isinstance(action, Finish):
                break
            answered = await self._wait(stream, action.until)
            if self.world.closing or (answered and self.sometimes(0.02)):
                self._state.finishing = True
                self._state.unsettled.flush_lazy()
            elif not self._state.finishing:
                await self._busy()
        await self._close(stream)

    async def _send(self):
        """Sends what is due; returns the wait, or the end of the channel, that follows."""
        while not isinstance(action := self._state.next_action(_now()), Wait | Finish):
            if isinstance(action, Lost):
                raise Silent("no frame within the heartbeat timeout")
            await self._write(action.request)
            if action.request.HasField("settle"):
                self.trip(self.cuts)
        return action

    async def _wait(self, stream, until):
        """Reads one answer, or waits until a request is due; returns whether there was one."""
        wait_s = min(max(until - _now(), 0.01), self.quiet_s)
        try:
            response = await self.patiently(stream.read(), wait_s)
        except Silent:
            self.finished |= _now() - self._delivered_at >= self.quiet_s
            return False
        if response is None:
            raise Cut("the broker ended the stream")
        self._read(response)
        return True

    async def _close(self, stream):
        """Half-closes: the broker requeues unacked messages."""
        asked = self.oracle.now()
        await stream.close_writes()
        while (response := await self.patiently(stream.read())) is not None:
            self._read(response)
        self._alive = asked
        self._forget()
        if self.world.closing:
            raise Ended

    async def _write(self, request):
        await self.send(self._stream_now, request)

    # --- the application ---

    async def _busy(self):
        """Takes messages, settles some of them, pulls, and changes a prefetch."""
        self.trip(0.02)
        if self.sometimes(0.3):
            await self.world.sleep(self.rng.random() * self.pace_s / 2)
        self._take_some(0.9)
        while self._held and self.sometimes(0.7):
            self._settle()
        if not self._no_ack and self._queues and self.sometimes(0.05):
            self._state.pull(self.rng.choice(self._queues), 2, no_ack=False)
        if self._subscriptions and self.sometimes(0.03):
            which = self.rng.choice((None, *self._subscriptions))
            self._state.set_prefetch(which, self.rng.randrange(2, 9))

    def _take_some(self, chance):
        """Takes arrived messages, each step with this chance."""
        for inbox in self._state.inboxes:
            while inbox.rows and self.sometimes(chance):
                self._take(inbox)

    def _take(self, inbox):
        taken = self._state.take(inbox, self.rng.randrange(1, 5))
        rows = taken.content[taken.row : taken.row + taken.rows]
        tags = list(_tags(taken.runs))
        self.oracle.check(
            [row.tag for row in rows] == tags, f"C11: {self._owner} takes {rows} as {tags}"
        )
        for tag in () if self._no_ack else tags:
            if tag not in self._unread:
                self.oracle.wrong(f"C11: {self._owner}: tag {tag} was taken twice")
                continue
            self._held[tag] = self._unread.pop(tag)

    def _settle(self):
        names, weights = zip(*self._weights.items(), strict=True)
        outcome = self.rng.choices(names, weights)[0]
        delay_ms = 300 if outcome == "released" and self.sometimes(0.5) else 0
        held = sorted(self._held)
        tag = self.rng.choice(held)
        multiple = self.sometimes(0.2)
        tags = held[: held.index(tag) + 1] if multiple else [tag]
        reason = f"{outcome} by {self.name}" if outcome in ("failed", "rejected") else ""
        disposition = Disposition(Outcome(outcome), reason, delay_ms)
        messages = [self._held.pop(each) for each in tags]
        holds = [Hold(self._owner, each) for each in tags]
        known = "later" if delay_ms else outcome
        operations = self.oracle.settle(messages, holds, known)
        self._unanswered.update(zip(tags, operations, strict=True))
        if multiple:
            self._state.unsettled.settle_up_to(tag, disposition, None)
        elif disposition == ACCEPT and self.sometimes(0.3):
            self._state.accept([Range(tag, tag)], When.LAZILY, _now())
        else:
            self._state.unsettled.settle_one(tag, disposition, None)

    # --- what the broker answers ---

    def _read(self, response):
        header = response.header
        kind = header.WhichOneof("kind")
        self._state.on_frame(_now())
        if kind == "delivery":
            self._delivered_at = _now()
            self._deliveries(header.delivery, response.block)
        elif kind == "settled":
            self._settled(header.settled)
        elif kind == "cancelled":
            reason = errors.from_detail(header.cancelled.reason)
            self._state.on_cancelled(header.cancelled.consumer, reason)
            self.oracle.check(
                reason.code == "queue_not_found", f"C12: {self._owner} cancelled: {reason}"
            )
        elif kind == "get_empty":
            self._state.on_get_empty(header.get_empty.number)
        else:
            assert kind == "heartbeat", header

    def _deliveries(self, delivery, block):
        void = self._state.unsettled.void
        rows = [row._replace(tag=row.tag + void) for row in rows_of(delivery.runs, block)]
        try:
            self._state.on_delivery(delivery, rows, _now())
        except InternalError as error:
            self.oracle.wrong(f"C1: {self._owner}: {error.message}")
        for row in rows:
            self._deliver(row)

    def _deliver(self, row):
        known = self._arrived.get(row.tag)
        if known is not None:
            # Without a transport ack a delivery is repeated, under the same tag (C11).
            self.oracle.check(
                known == (row.name, row.count), f"C11: tag {row.tag} was {known}, and is {row}"
            )
            return
        self.oracle.check(
            row.tag == self._last_tag + 1,
            f"C1: {self._owner}: tag {row.tag} follows {self._last_tag}",
        )
        self._last_tag = row.tag
        self._arrived[row.tag] = (row.name, row.count)
        hold = None if self._no_ack else Hold(self._owner, row.tag)
        message = self.oracle.delivered(row, row.queue, hold, self._begun)
        if message is not None and not self._no_ack:
            self._unread[row.tag] = message

    def _settled(self, answer):
        if answer.number in self._answered:
            self.oracle.wrong(f"C15: {self._owner}: settlement {answer.number} answered twice")
            return
        self._answered.add(answer.number)
        settlement = self._state.on_settled(answer)
        if settlement is None:
            return  # a part of it has no answer yet
        self.oracle.check(
            not settlement.mismatched,
            f"C3: {self._owner}: another number than {settlement.messages} settled",
        )
        instant = self.oracle.now()
        self.oracle.figures["settlements"] += 1
        for tag in _tags(settlement.runs):
            operation = self._unanswered.pop(tag)
            operation.done(instant)
            self._alive = max(self._alive, operation.call)


def _tags(runs):
    """Each tag of some runs, as pairs of first and last."""
    return (tag for first, last in runs for tag in range(first, last + 1))


def _now():
    return asyncio.get_running_loop().time()
