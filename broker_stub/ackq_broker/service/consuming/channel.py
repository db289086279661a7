"""One channel: its consumers, what they hold, and what it is owed next (C1-C9, C12).

Invariant: a channel outlives a stream that was cut, and nothing is delivered while it has none;
its end puts back everything that is unacked, in one decision.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from pyroaring import BitMap64

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError, LimitError, QueueNotFoundError
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.core import commands
from ackq_broker.service.consuming.consumer import Consumer
from ackq_broker.service.consuming.dispatcher import Dispatcher
from ackq_broker.service.consuming.reply_cache import ChannelMemory
from ackq_broker.service.consuming.settlement import Fold
from ackq_broker.service.consuming.subscriptions import Subscription, subscription_of
from ackq_broker.service.consuming.tag_runs import has_runs, tags_of
from ackq_broker.service.consuming.transport_window import Parcel, TransportWindow
from ackq_broker.service.consuming.unacked import Holder, Ledger
from ackq_broker.service.engine.engine import Engine
from ackq_broker.service.transport.errors import detail

# Pulls that may wait for the transport window.
_PULLS: Final = 10_000


class Sink(Protocol):
    """The stream of a channel, as far as the channel needs it."""

    @property
    def full(self) -> bool:
        """Whether as much waits to be sent as should."""
        ...

    def deliver(self, parcel: Parcel, sequence: int) -> None:
        """Sends a parcel once `sequence` is on disk."""
        ...

    def answer(self, header: pb.ConsumeHeader, sequence: int) -> None:
        """Sends a header once `sequence` is on disk, after all that was given before."""
        ...

    def fence(self) -> None:
        """Another stream took the channel over."""
        ...


@dataclass(slots=True)
class _Pull:
    """A `Get` that wants more."""

    queue: str
    left: int
    number: int
    no_ack: bool


class Channel:
    """What a client has open under one channel id.

    Attributes:
        window: What was delivered without a transport ack yet.
        consumers: By name.
        memory: What a client that was cut may ask again.
        stream: None while the channel is cut.
        closed: Its end was decided.

    Args:
        engine: Decides.
        dispatcher: Serves consumers.
        channel_id: 16 random bytes of the client's.
        window_messages: The transport window.
        label: Shown to operators.
    """

    def __init__(
        self,
        engine: Engine,
        dispatcher: Dispatcher,
        channel_id: bytes,
        window_messages: int,
        label: str,
    ) -> None:
        self.channel_id = channel_id
        self.label = label
        self.window = TransportWindow(window_messages)
        self.consumers: dict[str, Consumer] = {}
        self.memory = ChannelMemory()
        self.stream: Sink | None = None
        self.closed = False
        self._engine = engine
        self._dispatcher = dispatcher
        self._ledger = Ledger()
        self._prefetch = 0
        # Consumers that wait for room on the channel: those with acks, those without.
        self._parked: dict[bool, OrderedDict[Consumer, None]] = {
            False: OrderedDict(),
            True: OrderedDict(),
        }
        self._pulls: deque[_Pull] = deque()

    # --- life ---

    def attach(self, stream: Sink) -> None:
        """A stream serves the channel: what has no transport ack goes out, again (C11)."""
        self.stream = stream
        for parcel in self.window.parcels:
            stream.deliver(parcel, self._engine.core.sequence)
        for cancelled in self.memory.cancelled.values():
            self._answer(cancelled)
        self.more_room()

    def detach(self) -> None:
        """The stream was cut."""
        self.stream = None
        self.window.cut()
        self.memory.cut()

    def close(self) -> None:
        """C12: the channel ends, and what is unacked is requeued; once."""
        if self.closed:
            return
        self.closed = True
        for consumer in tuple(self.consumers.values()):
            self._remove(consumer)
        self._pulls.clear()
        self._let_go(self.window.drain())
        self._engine.decide(commands.CloseChannel(self.channel_id))

    # --- consumers ---

    def subscribe(self, request: pb.Subscribe, *, again: bool) -> None:
        """Starts a consumer.

        Args:
            request: What consumer.
            again: The client was cut and may not know that it has the consumer already, or had it
                until the queue was deleted: that is no error then, and said once more (Q4).

        Raises:
            QueueNotFoundError: No such queue.
            InvalidArgumentError: The name is taken or no name, or there are too many consumers.
            InvalidOperationError: It declares an outcome that the broker did not announce (C5).
        """
        subscription = subscription_of(request)
        present = self.consumers.get(subscription.consumer)
        if present is not None:
            if not (again and present.subscription.same_as(subscription)):
                raise InvalidArgumentError(
                    f"The channel has a consumer '{subscription.consumer}' already; give this one"
                    " another name.",
                    consumer=subscription.consumer,
                )
            return
        if again and subscription.consumer in self.memory.cancelled:
            self._answer(self.memory.cancelled[subscription.consumer])
            return
        if len(self.consumers) >= limits.MAX_CONSUMERS_PER_CHANNEL:
            raise LimitError(
                f"The channel has {limits.MAX_CONSUMERS_PER_CHANNEL} consumers, the most it may"
                " have; open another channel.",
                limit=limits.MAX_CONSUMERS_PER_CHANNEL,
            )
        try:
            self._start(subscription)
        except QueueNotFoundError as error:
            if not again:
                raise
            self._say_cancelled(subscription.consumer, error)

    def unsubscribe(self, name: str) -> None:
        """Ends a consumer, if there is one; what it holds stays unacked on the channel."""
        self.memory.cancelled.pop(name, None)
        consumer = self.consumers.get(name)
        if consumer is not None:
            self._remove(consumer)

    def cancel(self, consumer: Consumer, reason: AckqError) -> None:
        """Ends a consumer from the broker's side, and says why."""
        self._remove(consumer)
        self._say_cancelled(consumer.subscription.consumer, reason)

    def set_prefetch(self, name: str, messages: int) -> None:
        """C8: changes the bound of a consumer that there is, or of the channel.

        What is out already may be over it for a while.
        """
        if not name:
            self._prefetch = messages
            self.more_room()
        elif name in self.consumers:
            self.consumers[name].prefetch = messages
            self._offer(self.consumers[name])

    # --- deliveries ---

    def room(self, *, no_ack: bool) -> int:
        """How many messages the channel as a whole can take now (C8, C11)."""
        # At a shutdown channels end one after the other: none shall get what others put back.
        if self.stream is None or self.stream.full or self._engine.stopping:
            return 0
        if no_ack or not self._prefetch:
            return self.window.room
        return min(self.window.room, max(0, self._prefetch - self._ledger.consumed))

    def deliver(self, consumer: Consumer, messages: int) -> int:
        """Delivers up to so many to a consumer; gives how many there were."""
        no_ack = consumer.subscription.no_ack
        return self._deliver(consumer.holder, consumer.queue, messages, no_ack=no_ack)

    def park(self, consumer: Consumer) -> None:
        """A consumer waits for room on the channel."""
        self._parked[consumer.subscription.no_ack].setdefault(consumer)

    def more_room(self) -> None:
        """Something left, or a bound was raised: pulls go on, then consumers that were parked."""
        while self._pulls and self.room(no_ack=True):
            if self._pull(self._pulls[0]):
                self._pulls.popleft()
        for no_ack, parked in self._parked.items():
            while parked and self.room(no_ack=no_ack):
                consumer, _ = parked.popitem(last=False)
                self._dispatcher.serve(consumer)

    def transport_ack(self, tag: int, now_s: float) -> None:
        """C11: reopens the window; removes nothing.

        Raises:
            InvalidArgumentError: No such tag was delivered.
        """
        arrived = self.window.ack(tag, now_s)
        self.memory.arrived(max((parcel.answers for parcel in arrived), default=0))
        self._let_go(arrived)
        self.more_room()

    def get(self, request: pb.Get, *, again: bool) -> None:
        """C9: pulls messages, whatever prefetch says; the transport window bounds what is out.

        Args:
            request: Of which queue, and how many.
            again: The client was cut and may not know that it has its answer already.

        Raises:
            QueueNotFoundError: No such queue.
            LimitError: Too many pulls wait for the window.
        """
        if again and self._pulled_before(request.number):
            return
        self._engine.core.ready(request.queue)
        if len(self._pulls) >= _PULLS:
            raise LimitError(
                f"{_PULLS} pulls wait for the channel's transport window; acknowledge what arrived"
                " before pulling more.",
                limit=_PULLS,
            )
        pull = _Pull(request.queue, max(1, request.messages), request.number, request.no_ack)
        self._pulls.append(pull)
        self.more_room()

    # --- settlements ---

    def settle(self, requests: Iterable[pb.Settle], *, again: bool) -> None:
        """C2-C5, C15: settles in order; what comes before one that is refused takes effect.

        Args:
            requests: Settlements that came together.
            again: The client was cut and may not know that some have their answer already.

        Raises:
            UnknownDeliveryTagError: A tag is not outstanding on this channel (C2).
            OutcomeNotSupportedError: An outcome was not declared (C5).
            InvalidArgumentError: A settlement makes no sense.
            LimitError: A settlement names too many runs of tags.
        """
        fold = Fold(self._ledger)
        answers: list[pb.Settled] = []
        try:
            for request in requests:
                messages = self.memory.settled(request.number) if again else 0
                messages = messages or fold.add(request)
                if not messages:
                    # After what came before it, which may be what settled the tag.
                    self._apply(fold)
                    self._refuse(request)
                if request.number:
                    answers.append(pb.Settled(number=request.number, settled=messages))
        finally:
            self._apply(fold)
            for settled in answers:
                self.memory.settle(settled.number, settled.settled)
                self._answer(pb.ConsumeHeader(settled=settled))
        self.more_room()

    # --- parts ---

    def _start(self, subscription: Subscription) -> None:
        """Begins a consumer; raises QueueNotFoundError."""
        self._engine.core.ready(subscription.queue)
        self.memory.cancelled.pop(subscription.consumer, None)
        consumer = Consumer(self, subscription)
        self.consumers[subscription.consumer] = consumer
        self._dispatcher.add(consumer)

    def _say_cancelled(self, name: str, reason: AckqError) -> None:
        """Tells the client that it has no such consumer (any more), now and after each cut."""
        cancelled = pb.ConsumerCancelled(consumer=name, reason=detail(reason))
        header = pb.ConsumeHeader(cancelled=cancelled)
        self.memory.cancel(name, header)
        self._answer(header)

    def _remove(self, consumer: Consumer) -> None:
        del self.consumers[consumer.subscription.consumer]
        self._parked[consumer.subscription.no_ack].pop(consumer, None)
        self._dispatcher.remove(consumer)

    def _deliver(
        self, holder: Holder, queue: str, messages: int, get_number: int = 0, *, no_ack: bool
    ) -> int:
        """One decision; its parcel goes to the stream, and waits there for the disk (I1)."""
        command = commands.Deliver(
            self.channel_id, queue, messages, limits.FRAME_TARGET_BYTES, no_ack
        )
        reply, sequence = self._engine.decide(command)
        if not reply.messages:
            return 0
        assert self.stream is not None
        parcel = Parcel(
            holder.name,
            get_number,
            reply.first_tag,
            reply.messages,
            reply.payload_bytes,
            reply.pieces,
            no_ack,
            self.memory.answers,
        )
        self._ledger.last_tag = parcel.last_tag
        if not no_ack:
            self._ledger.give(holder, parcel.first_tag, parcel.messages)
        self.window.add(parcel)
        self.stream.deliver(parcel, sequence)
        self._engine.counters["delivered"] += parcel.messages
        return parcel.messages

    def _pull(self, pull: _Pull) -> bool:
        """Gives a pull what there is and what fits; whether it is through."""
        wanted = min(pull.left, self.room(no_ack=True), limits.FRAME_TARGET_ROWS)
        try:
            got = self._deliver(
                self._ledger.pulled, pull.queue, wanted, pull.number, no_ack=pull.no_ack
            )
        except QueueNotFoundError:
            # It was deleted since the pull began: there is nothing more.
            got = 0
        pull.left -= got
        if got and pull.left:
            return False
        self.memory.pull(pull.number, found_fewer=not got)
        if not got:
            self._answer(_get_empty(pull.number))
        return True

    def _pulled_before(self, number: int) -> bool:
        """Whether a pull is known by its number; one that found too few is answered again."""
        found_fewer = self.memory.pulled(number)
        if found_fewer:
            self._answer(_get_empty(number))
        return found_fewer is not None or number in {pull.number for pull in self._pulls}

    def _apply(self, fold: Fold) -> None:
        """Decides what a fold holds; whoever held the messages has room again."""
        for command in fold.drain(self.channel_id):
            settlement = self._engine.decide(command).reply
            assert settlement.messages == len(command.tags)
            self._engine.counters[command.outcome.value] += settlement.messages
            for holder in self._ledger.settled(command.tags):
                consumer = self.consumers.get(holder.name)
                if consumer is not None and consumer.holder is holder:
                    self._offer(consumer)

    def _refuse(self, settle: pb.Settle) -> None:
        """C2: the core knows what is wrong with a tag that is not open."""
        tags, up_to = BitMap64((settle.delivery_tag,)), 0
        if has_runs(settle):
            tags = tags_of(settle, self._ledger.last_tag) - self._ledger.open
        elif settle.multiple:
            up_to = settle.delivery_tag
        self._engine.decide(
            commands.Settle(self.channel_id, FROM_WIRE[settle.outcome], tags, up_to)
        )
        raise AssertionError("the core settled a tag that the ledger does not know")

    def _offer(self, consumer: Consumer) -> None:
        """A consumer may have room of its own; one that waits for the channel goes on waiting."""
        if consumer not in self._parked[consumer.subscription.no_ack]:
            self._dispatcher.offer(consumer)

    def _let_go(self, parcels: Iterable[Parcel]) -> None:
        """Parcels that nobody has to send again; without acks their blocks were pinned."""
        for parcel in parcels:
            if parcel.no_ack:
                self._engine.core.unpin(parcel.pieces)

    def _answer(self, header: pb.ConsumeHeader) -> None:
        """Tells the client, once everything decided so far is on disk (I1)."""
        if self.stream is not None:
            self.stream.answer(header, self._engine.core.sequence)


def _get_empty(number: int) -> pb.ConsumeHeader:
    return pb.ConsumeHeader(get_empty=pb.GetEmpty(number=number))
