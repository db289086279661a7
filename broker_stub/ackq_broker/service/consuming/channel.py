"""One channel: its consumers, their unacked messages, pulls and settlements (C1-C9, C12).

Invariant: a channel outlives the disconnect of its stream, and delivers nothing while it has no
stream; closing it requeues all unacked messages in one decision.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from pyroaring import BitMap64

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError, LimitError, QueueNotFoundError
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.core import commands, views
from ackq_broker.engine.engine import Engine
from ackq_broker.service.consuming.consumer import BrokerConsumer, ConsumerConfig, decode_config
from ackq_broker.service.consuming.delivery_times import DeliveryTimes
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.reply_cache import ReplyCache
from ackq_broker.service.consuming.settlement import SettlementBatch, has_runs, tags_of_runs
from ackq_broker.service.consuming.transport_window import PendingDelivery, TransportWindow
from ackq_broker.service.consuming.unacked import UnackedOwner, UnackedTags
from ackq_broker.service.transport.fields import error_detail

# Maximum number of pulls that may wait for the transport window.
_PULLS: Final = 10_000


class AttachedStream(Protocol):
    """The part of a consume stream's interface that its channel uses."""

    @property
    def full(self) -> bool:
        """Backpressure: whether the deliveries or bytes ahead of the wire are at their limit."""

    def deliver(self, delivery: PendingDelivery, sequence: int) -> None:
        """Sends a delivery once `sequence` is on disk."""

    def answer(self, header: pb.ConsumeHeader, sequence: int) -> None:
        """Sends a header once `sequence` is on disk, after everything queued before it."""

    def fence(self, error: AckqError) -> None:
        """Ends the stream with an error, because a newer stream opened the channel."""


@dataclass(slots=True)
class _Pull:
    """A `Get` that waits for more messages."""

    queue: str
    left: int
    number: int
    no_ack: bool


class BrokerChannel:
    """The broker's side of one channel id.

    Attributes:
        instance: Unique to this channel; never shared with another channel of the same client
            id (C17).
        window: Deliveries without a transport ack.
        consumers: The consumers by name.
        reply_cache: Answers to requests that the client may repeat after a reconnect.
        stream: None while the client is disconnected.
        closed: Whether the closing of the channel was decided.
        delivery_times: When the unacked messages were delivered.
        settled_us: Time of the client's last settlement, else when the channel began.

    Args:
        engine: Decides commands.
        dispatcher: Serves consumers.
        channel_id: 16 random bytes that the client chose.
        window_messages: Size of the transport window in messages.
        label: Shown to operators.
        user: The user that owns the channel (A10); empty without a users file.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: ConsumerDispatcher,
        channel_id: bytes,
        window_messages: int,
        label: str,
        user: str = "",
    ) -> None:
        self.channel_id = channel_id
        self.user = user
        self.instance = secrets.token_bytes(16)
        self.label = label
        self.window = TransportWindow(window_messages)
        self.consumers: dict[str, BrokerConsumer] = {}
        self.reply_cache = ReplyCache()
        self.stream: AttachedStream | None = None
        self.closed = False
        self.delivery_times = DeliveryTimes()
        self.settled_us = engine.clock.now_us()
        self._engine = engine
        self._dispatcher = dispatcher
        self._unacked = UnackedTags()
        self._prefetch = 0
        # Consumers waiting for room on the channel, by `no_ack`.
        self._parked: dict[bool, OrderedDict[BrokerConsumer, None]] = {
            False: OrderedDict(),
            True: OrderedDict(),
        }
        self._pulls: deque[_Pull] = deque()

    @property
    def queues(self) -> set[str]:
        """The queues that the channel delivers from: its consumers' and its waiting pulls'."""
        consumed = {consumer.queue for consumer in self.consumers.values()}
        return consumed | {pull.queue for pull in self._pulls}

    # --- lifecycle ---

    def attach(self, stream: AttachedStream) -> None:
        """Attaches a stream and sends every delivery without a transport ack (again) (C11)."""
        self.stream = stream
        for delivery in self.window.deliveries:
            stream.deliver(delivery, self._engine.core.sequence)
        for cancelled in self.reply_cache.cancelled.values():
            self._answer(cancelled)
        self.resume_deliveries()

    def detach(self) -> None:
        """Detaches the stream after its client disconnected."""
        self.stream = None
        self.window.disconnect()
        self.reply_cache.disconnect()

    def close(self) -> None:
        """Closes the channel and requeues all unacked messages; idempotent (C12)."""
        if self.closed:
            return
        self.closed = True
        for consumer in tuple(self.consumers.values()):
            self._remove(consumer)
        self._pulls.clear()
        self._unpin(self.window.drain())
        self._engine.decide(commands.CloseChannel(self.channel_id))

    # --- consumers ---

    def subscribe(self, request: pb.Subscribe, *, may_repeat: bool) -> None:
        """Starts a consumer.

        Args:
            request: Name, queue, prefetch and outcomes of the consumer.
            may_repeat: The client reconnected and may repeat a subscribe: an existing consumer is
                then no error, and one that the broker cancelled is cancelled again (Q4).

        Raises:
            QueueNotFoundError: No such queue; a consumer that the client had before is cancelled
                instead.
            InvalidArgumentError: The name is taken or invalid.
            LimitError: The channel has the maximum number of consumers.
            InvalidOperationError: It declares an outcome that the broker did not announce (C5).
        """
        config = decode_config(request)
        present = self.consumers.get(config.name)
        if present is not None:
            if not (may_repeat and present.config.compatible(config)):
                raise InvalidArgumentError(
                    f"The channel has a consumer '{config.name}' already; give this one"
                    " another name.",
                    consumer=config.name,
                )
            return
        if may_repeat and config.name in self.reply_cache.cancelled:
            self._answer(self.reply_cache.cancelled[config.name])
            return
        if len(self.consumers) >= limits.MAX_CONSUMERS_PER_CHANNEL:
            raise LimitError(
                f"The channel has {limits.MAX_CONSUMERS_PER_CHANNEL} consumers, the most it may"
                " have; open another channel.",
                limit=limits.MAX_CONSUMERS_PER_CHANNEL,
            )
        try:
            self._start(config)
        except QueueNotFoundError as error:
            if not (may_repeat or request.renewed):
                raise
            self._notify_cancelled(config.name, error)

    def unsubscribe(self, name: str) -> None:
        """Ends a consumer if it exists; its unacked messages stay unacked on the channel."""
        self.reply_cache.cancelled.pop(name, None)
        consumer = self.consumers.get(name)
        if consumer is not None:
            self._remove(consumer)

    def cancel(self, consumer: BrokerConsumer, reason: AckqError) -> None:
        """Cancels a consumer on the broker's initiative and notifies the client."""
        self._remove(consumer)
        self._notify_cancelled(consumer.config.name, reason)

    def set_prefetch(self, name: str, messages: int) -> None:
        """Changes the prefetch of a consumer, if it exists, or of the channel (C8).

        Messages already unacked may exceed the new bound for a while.
        """
        if not name:
            self._prefetch = messages
            self.resume_deliveries()
        elif name in self.consumers:
            self.consumers[name].prefetch = messages
            self._offer(self.consumers[name])

    # --- deliveries ---

    def room(self, *, no_ack: bool) -> int:
        """The number of messages that can be delivered on the whole channel now (C8, C11)."""
        # At a shutdown channels close one by one; none may receive messages that others requeue.
        if self.stream is None or self.stream.full:
            return 0
        if self._engine.alarms.stopping or self._engine.alarms.draining:
            return 0
        if no_ack or not self._prefetch:
            return self.window.room
        return min(self.window.room, max(0, self._prefetch - self._unacked.prefetched))

    def deliver(self, consumer: BrokerConsumer, messages: int) -> int:
        """Delivers up to `messages` messages to a consumer; returns the number delivered."""
        config = consumer.config
        return self._deliver(
            consumer.owner,
            consumer.queue,
            messages,
            no_ack=config.no_ack,
            identified=config.message_ids,
        )

    def park(self, consumer: BrokerConsumer) -> None:
        """Parks a consumer until there is room on the channel."""
        self._parked[consumer.config.no_ack].setdefault(consumer)

    def resume_deliveries(self) -> None:
        """Serves pulls, then parked consumers, while there is room on the channel."""
        while self._pulls and self.room(no_ack=True):
            if self._pull(self._pulls[0]):
                self._pulls.popleft()
        for no_ack, parked in self._parked.items():
            while parked and self.room(no_ack=no_ack):
                consumer, _ = parked.popitem(last=False)
                self._dispatcher.serve(consumer)

    def transport_ack(self, tag: int, now_s: float) -> None:
        """Reopens the transport window up to a tag; settles nothing (C11).

        Raises:
            InvalidArgumentError: No such tag was delivered.
        """
        arrived = self.window.ack(tag, now_s)
        self.reply_cache.acknowledged(
            max((delivery.answers_before for delivery in arrived), default=0)
        )
        self._unpin(arrived)
        self.resume_deliveries()

    def get(self, request: pb.Get, *, may_repeat: bool) -> None:
        """Pulls messages; bounded by the transport window, not by prefetch (C9).

        Args:
            request: The queue and the number of messages.
            may_repeat: The client reconnected and may repeat a pull that was already answered.

        Raises:
            QueueNotFoundError: No such queue.
            LimitError: Too many pulls wait for the window.
        """
        if may_repeat and self._pulled_before(request.number):
            return
        views.ready(self._engine.core.state, request.queue)
        if len(self._pulls) >= _PULLS:
            raise LimitError(
                f"{_PULLS} pulls wait for the channel's transport window; acknowledge delivered"
                " messages before pulling more.",
                limit=_PULLS,
            )
        pull = _Pull(request.queue, max(1, request.messages), request.number, request.no_ack)
        self._pulls.append(pull)
        self.resume_deliveries()

    # --- settlements ---

    def settle(self, requests: Iterable[pb.Settle], *, may_repeat: bool) -> None:
        """Applies settlements in order; those before a refused one take effect (C2-C5, C15).

        Args:
            requests: Settlements that arrived together.
            may_repeat: The client reconnected and may repeat settlements that were answered.

        Raises:
            UnknownDeliveryTagError: A tag is not outstanding on this channel (C2).
            OutcomeNotSupportedError: An outcome was not declared (C5).
            InvalidArgumentError: A settlement is malformed.
            LimitError: A settlement names too many runs of tags.
        """
        batch = SettlementBatch(self._unacked)
        answers: list[pb.Settled] = []
        try:
            for request in requests:
                messages = self.reply_cache.find_settled(request.number) if may_repeat else 0
                messages = messages or batch.add(request)
                if not messages:
                    # Apply the earlier settlements first: one of them may have settled the tag.
                    self._apply(batch)
                    self._refuse(request)
                if request.number:
                    answers.append(pb.Settled(number=request.number, settled=messages))
        finally:
            self._apply(batch)
            for settled in answers:
                self.reply_cache.add_settled(settled.number, settled.settled)
                self._answer(pb.ConsumeHeader(settled=settled))
        self.resume_deliveries()

    # --- parts ---

    def _start(self, config: ConsumerConfig) -> None:
        """Starts a consumer; raises QueueNotFoundError if its queue does not exist."""
        views.ready(self._engine.core.state, config.queue)
        self.reply_cache.cancelled.pop(config.name, None)
        consumer = BrokerConsumer(self, config)
        self.consumers[config.name] = consumer
        self._dispatcher.add(consumer)

    def _notify_cancelled(self, name: str, reason: AckqError) -> None:
        """Notifies the client that a consumer was cancelled, now and after each reconnect."""
        cancelled = pb.ConsumerCancelled(consumer=name, reason=error_detail(reason))
        header = pb.ConsumeHeader(cancelled=cancelled)
        self.reply_cache.add_cancelled(name, header)
        self._answer(header)

    def _remove(self, consumer: BrokerConsumer) -> None:
        del self.consumers[consumer.config.name]
        self._parked[consumer.config.no_ack].pop(consumer, None)
        self._dispatcher.remove(consumer)

    def _deliver(
        self,
        owner: UnackedOwner,
        queue: str,
        messages: int,
        get_number: int = 0,
        *,
        no_ack: bool,
        identified: bool = False,
    ) -> int:
        """Decides one delivery and queues it on the stream, where it waits for the sync (I1)."""
        command = commands.Deliver(
            self.channel_id, queue, messages, limits.FRAME_TARGET_BYTES, no_ack, identified
        )
        reply, sequence = self._engine.decide(command)
        if not reply.messages:
            return 0
        assert self.stream is not None
        delivery = PendingDelivery(
            owner.name,
            get_number,
            reply.first_tag,
            reply.messages,
            reply.payload_bytes,
            reply.pieces,
            no_ack,
            self.reply_cache.answers,
        )
        self._unacked.last_tag = delivery.last_tag
        if not no_ack:
            self._unacked.assign(
                owner, delivery.first_tag, delivery.messages, delivery.payload_bytes
            )
            self.delivery_times.note(delivery.first_tag, self._engine.clock.now_us())
        self.window.add(delivery)
        self.stream.deliver(delivery, sequence)
        self._engine.counters["delivered"] += delivery.messages
        return delivery.messages

    def _pull(self, pull: _Pull) -> bool:
        """Serves a pull with ready messages that fit; returns whether the pull is complete."""
        wanted = min(pull.left, self.room(no_ack=True), limits.FRAME_TARGET_ROWS)
        try:
            got = self._deliver(
                self._unacked.pulled, pull.queue, wanted, pull.number, no_ack=pull.no_ack
            )
        except QueueNotFoundError:
            # The queue was deleted since the pull began.
            got = 0
        pull.left -= got
        if got and pull.left:
            return False
        self.reply_cache.add_pulled(pull.number, found_fewer=not got)
        if not got:
            self._answer(_get_empty(pull.number))
        return True

    def _pulled_before(self, number: int) -> bool:
        """Whether a pull is a repetition; one that found too few messages is answered again."""
        found_fewer = self.reply_cache.find_pulled(number)
        if found_fewer:
            self._answer(_get_empty(number))
        return found_fewer is not None or number in {pull.number for pull in self._pulls}

    def _apply(self, batch: SettlementBatch) -> None:
        """Decides a batch of settlements and offers the consumers, which have room again."""
        for command in batch.drain(self.channel_id):
            self.settled_us = self._engine.clock.now_us()
            settlement = self._engine.decide(command).reply
            assert settlement.messages == len(command.tags)
            self._engine.counters[command.outcome.value] += settlement.messages
            for owner in self._unacked.remove(command.tags):
                consumer = self.consumers.get(owner.name)
                if consumer is not None and consumer.owner is owner:
                    self._offer(consumer)

    def _refuse(self, settle: pb.Settle) -> None:
        """Raises the core's refusal of a tag that is not outstanding (C2)."""
        tags, up_to = BitMap64((settle.delivery_tag,)), 0
        if has_runs(settle):
            tags = tags_of_runs(settle, self._unacked.last_tag) - self._unacked.outstanding
        elif settle.multiple:
            up_to = settle.delivery_tag
        self._engine.decide(
            commands.Settle(self.channel_id, FROM_WIRE[settle.outcome], tags, up_to)
        )
        raise AssertionError("the core settled a tag that is not outstanding here")

    def _offer(self, consumer: BrokerConsumer) -> None:
        """Offers a consumer that may have room to the dispatcher, unless it is parked."""
        if consumer not in self._parked[consumer.config.no_ack]:
            self._dispatcher.offer(consumer)

    def _unpin(self, deliveries: Iterable[PendingDelivery]) -> None:
        """Unpins the blocks of `no_ack` deliveries, which need not be sent again."""
        for delivery in deliveries:
            if delivery.no_ack:
                self._engine.core.unpin(delivery.pieces)

    def _answer(self, header: pb.ConsumeHeader) -> None:
        """Answers the client once everything decided so far is on disk (I1)."""
        if self.stream is not None:
            self.stream.answer(header, self._engine.core.sequence)


def _get_empty(number: int) -> pb.ConsumeHeader:
    return pb.ConsumeHeader(get_empty=pb.GetEmpty(number=number))
