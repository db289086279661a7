"""State machine of a channel: decides the next request to send. No I/O, no clock, no lock.

Invariant: only the open is sent before `ChannelOpened` arrives, and a message is delivered to the
application once, under one tag, however often the broker sends it (C11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ackq import limits
from ackq.client.connection.duplex import Finish, Lost, Send, Wait
from ackq.client.consuming.inbox import Content, Inbox, RowSlice, Span
from ackq.client.consuming.received_tags import ReceivedTags
from ackq.client.consuming.settlement import PendingSettlement, Settlement
from ackq.client.consuming.unsettled import Unsettled
from ackq.client.outcomes import When
from ackq.client.ranges import Range
from ackq.errors import AckqError, InternalError, InvalidArgumentError, InvalidOperationError
from ackq.outcomes import ACCEPT, Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq.v1 import messages_pb2
from ackq.wire.outcomes import FROM_WIRE, TO_WIRE


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Validated settings of a channel.

    Attributes:
        window_messages: Maximum number of messages the broker sends without a transport ack (C11).
        transport_ack_percent: A transport ack is due at this percentage of the window.
        transport_ack_delay_s: ... or this long after the first message without one, in seconds.
    """

    window_messages: int
    transport_ack_percent: int
    transport_ack_delay_s: float

    def __post_init__(self) -> None:
        # The names are those of the channel's arguments.
        for name, value, most in (
            ("window_messages", self.window_messages, limits.MAX_CHANNEL_WINDOW_MESSAGES),
            ("transport_ack_percent", self.transport_ack_percent, 100),
            ("transport_ack_delay_ms", self.transport_ack_delay_s * 1000, limits.HEARTBEAT_MS),
        ):
            if not 0 < value <= most:
                raise InvalidArgumentError(
                    f"'{name}' must be over 0 and at most {most}.", argument=name
                )

    @property
    def ack_messages(self) -> int:
        """Number of messages without a transport ack at which one is due."""
        return max(1, self.window_messages * self.transport_ack_percent // 100)


Action = Send[pb.ConsumeRequest] | Wait | Lost | Finish


class Subscription(Inbox):
    """The subscription of one consumer of a channel.

    Attributes:
        request: The `Subscribe` sent to the broker.
        outcomes: Outcomes with which the application may settle its messages (C5).
        known: Whether the broker has the consumer: a delivery for it has arrived.
        prefetch_changed: Whether its prefetch was changed after the subscribe.
    """

    def __init__(self, request: pb.Subscribe, outcomes: frozenset[Outcome]) -> None:
        super().__init__(no_ack=request.no_ack)
        self.request = request
        self.outcomes = outcomes
        self.known = False
        self.prefetch_changed = False

    def renew(self, *, known_to_broker: bool) -> None:
        """Resets the consumer for a new channel; sets `renewed` if the broker supports it (C17)."""
        self.void()
        self.known = self.prefetch_changed = False
        self.request.renewed = known_to_broker


class Pull(Inbox):
    """A pull of up to a number of messages by a `Get` (C9).

    Attributes:
        request: The `Get` sent to the broker.
        left: Number of messages that may still arrive.
        sent: Whether the broker may have the request: messages may arrive for it.
        complete: Whether every message of the pull has arrived; some may still be unread.
    """

    def __init__(self, request: pb.Get) -> None:
        super().__init__(no_ack=request.no_ack)
        self.request = request
        self.left = request.messages
        self.sent = False
        self.complete = False

    def renew(self) -> None:
        """Re-issues the pull on a new channel for the messages still outstanding (C17)."""
        self.sent = False
        if self.no_ack:
            self.request.messages = max(1, self.left)
            return
        self.void()
        self.left = self.request.messages
        self.complete = False


class ChannelState:
    """The state of one channel: consumers, pulls, tags, settlements and the stream.

    Attributes:
        unsettled: Its outstanding tags and their settlements.
        announced: Outcomes the broker supports (C5); known once a stream was opened.
        opened: Whether a stream exists and the broker has answered its open.
        ever_opened: Whether the broker has opened the channel at least once.
        finishing: Whether the channel makes no new requests and half-closes its stream once every
            settlement is answered.
    """

    def __init__(self, settings: ChannelSettings) -> None:
        self.settings = settings
        self.unsettled = Unsettled()
        self.announced: frozenset[Outcome] = frozenset()
        self.opened = False
        self.ever_opened = False
        self.finishing = False
        self._instance = b""  # the broker's name of its channel (C17)
        self._received_tags = self._no_tags(0)
        # Messages in the inboxes of consumers, which bound the window. A pull is read when it is
        # whole: its number bounds it (C9).
        self._unread = 0
        self._subscriptions: dict[str, Subscription] = {}
        # The most recently closed subscriptions; the broker may not know yet that they are closed.
        self._closed: dict[str, Subscription] = {}
        self._pulls: dict[int, Pull] = {}
        self._prefetch: int | None = None  # prefetch of the channel; None: never set
        self._last_consumer = 0
        self._last_pull = 0
        self._requests: deque[pb.ConsumeRequest] = deque()
        self._heartbeat_s = limits.HEARTBEAT_SEND_MS / 1000
        self._last_frame_at = 0.0
        self._sent_at = 0.0
        self._waits_until: float | None = None  # timeout of the sender; None: it is not waiting
        self._sleeps_until: float | None = None  # its last timeout, even if it was woken earlier

    def _no_tags(self, void: int) -> ReceivedTags:
        wanted = self.settings
        return ReceivedTags(
            wanted.window_messages, wanted.ack_messages, wanted.transport_ack_delay_s, void=void
        )

    # --- called for the application ---

    @property
    def inboxes(self) -> list[Inbox]:
        """All open consumers and pulls."""
        return [*self._subscriptions.values(), *self._pulls.values()]

    def subscribe(
        self,
        queue: str,
        *,
        prefetch: int,
        outcomes: frozenset[Outcome],
        no_ack: bool,
        message_ids: bool = False,
        prefetch_bytes: int = 0,
    ) -> Subscription:
        """Starts a consumer.

        RELEASED is declared for the client's own use: for the unread messages of a closed consumer,
        and for messages whose callback raised (C10).

        Raises:
            InvalidOperationError: The broker does not support an outcome (C5).
        """
        unsupported = outcomes - self.announced
        if unsupported:
            raise InvalidOperationError(
                f"The broker does not support the outcome {_names(unsupported)}; it announces "
                f"{_names(self.announced)}. Declare only supported ones.",
                outcome=_names(unsupported),
                queue=queue,
            )
        negative = (outcomes | {Outcome.RELEASED}) & self.announced - {Outcome.ACCEPTED}
        self._last_consumer += 1
        request = pb.Subscribe(
            consumer=str(self._last_consumer),
            queue=queue,
            prefetch=prefetch,
            outcomes=[] if no_ack else sorted(TO_WIRE[each] for each in negative),
            no_ack=no_ack,
            message_ids=message_ids,
            prefetch_bytes=prefetch_bytes,
        )
        subscription = Subscription(request, outcomes)
        self._subscriptions[request.consumer] = subscription
        self._requests.append(pb.ConsumeRequest(subscribe=request))
        self._limit_lazy(prefetch)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Ends a consumer; its unread messages are released."""
        if subscription.closed:
            return
        self._close_inbox(subscription)
        name = subscription.request.consumer
        del self._subscriptions[name]
        if subscription.ended is None:
            self._requests.append(pb.ConsumeRequest(unsubscribe=pb.Unsubscribe(consumer=name)))
            self._closed[name] = subscription
            if len(self._closed) > limits.MAX_CONSUMERS_PER_CHANNEL:
                del self._closed[next(iter(self._closed))]

    def set_prefetch(self, subscription: Subscription | None, messages: int) -> None:
        """Sets the prefetch of a consumer, or of the channel if `subscription` is None (C8)."""
        if subscription is None:
            self._prefetch = messages
            name = ""
        else:
            subscription.request.prefetch = messages
            subscription.prefetch_changed = True
            name = subscription.request.consumer
        self._limit_lazy(messages)
        change = pb.Prefetch(consumer=name, messages=messages)
        self._requests.append(pb.ConsumeRequest(prefetch=change))

    def pull(self, queue: str, messages: int, *, no_ack: bool) -> Pull:
        """Starts a pull (C9)."""
        self._last_pull += 1
        pull = Pull(pb.Get(queue=queue, messages=messages, number=self._last_pull, no_ack=no_ack))
        self._pulls[self._last_pull] = pull
        self._requests.append(pb.ConsumeRequest(get=pull.request))
        return pull

    def cancel_pull(self, pull: Pull) -> None:
        """Ends a pull, unsent if not yet sent; messages that still arrive are released."""
        self._close_inbox(pull)
        number = pull.request.number
        self._requests = deque(each for each in self._requests if each.get.number != number)
        self._forget_done(pull)

    def take(self, inbox: Inbox, limit: int) -> RowSlice | None:
        """Takes up to `limit` messages from an inbox; they become unacked."""
        taken = inbox.take(limit)
        if taken is not None:
            self._count(inbox, -taken.rows)
            if not inbox.no_ack:
                self.unsettled.hand_over(taken.runs)
            if isinstance(inbox, Pull):
                self._forget_done(inbox)
        return taken

    def take_one(self, inbox: Inbox) -> tuple[Content, int, int] | None:
        """Takes one message from an inbox; returns its frame, its row in the frame, its tag."""
        taken = inbox.take_one()
        if taken is not None:
            self._count(inbox, -1)
            if not inbox.no_ack:
                self.unsettled.hand_over_one(taken[2])
        return taken

    @property
    def at_window(self) -> bool:
        """Whether the unread messages just fill the window: a transport ack may be due (C11)."""
        return self._unread == self.settings.window_messages

    def accept(self, runs: list[Range], when: When, now: float) -> Settlement | None:
        """Accepts messages automatically, as the acknowledge mode requires (C10).

        Returns:
            The future of an accept that is sent now; None if it is sent later or not at all.
        """
        if when is When.LAZILY:
            self.unsettled.accept_lazily(runs, now)
        elif when is When.NOW:
            future = Settlement()
            self.unsettled.settle(runs, ACCEPT, future)
            return future
        return None

    @property
    def done(self) -> bool:
        """Whether the channel is finishing and every settlement is answered."""
        return self.finishing and self.unsettled.idle

    # --- called by the sender ---

    def next_action(self, now: float) -> Action:
        """The next action of the sender; new settlements come last, so they delay nothing else."""
        self._waits_until = None
        self._leave_out_sleep(now)
        silent_at = self._last_frame_at + limits.HEARTBEAT_MS / 1000
        if now >= silent_at:
            return Lost()
        if not self.opened:
            # Waits in short steps: a delayed wake-up then affects one step only.
            self._sleeps_until = min(silent_at, now + limits.HEARTBEAT_SEND_MS / 1000)
            return Wait(self._sleeps_until)
        request = self._next_request(now)
        if request is not None:
            self._sent_at = now
            return Send(request)
        if self.done:
            return Finish()
        self._waits_until = self._sleeps_until = self._wake_at()
        return Wait(self._waits_until)

    def wakes_sender(self) -> bool:
        """Whether the sender must be woken before its current timeout; True once per wait."""
        if self._waits_until is None or not self.opened:
            return False
        if self._requests or self._wake_at() < self._waits_until:
            self._waits_until = None
            return True
        return False

    def _leave_out_sleep(self, now: float) -> None:
        """Does not count the time by which this process overslept as silence of the broker (C12).

        A process that was starved or stopped has not read what arrived in the meantime.
        """
        if self._sleeps_until is not None:
            late_s = max(0.0, now - self._sleeps_until)
            self._last_frame_at = min(self._last_frame_at + late_s, now)
            self._sleeps_until = None

    def _next_request(self, now: float) -> pb.ConsumeRequest | None:
        if self._requests:
            request = self._requests.popleft()
            pull = self._pulls.get(request.get.number)
            if pull is not None:
                pull.sent = True
            return request
        # Before any transport ack: the broker may take an ack as proof that its answers arrived.
        again = self.unsettled.next_repeat()
        if again is not None:
            return pb.ConsumeRequest(settle=again)
        tag = self._received_tags.ack_due(now, self._unread)
        if tag is not None:
            ack = pb.TransportAck(delivery_tag=tag - self.unsettled.void)
            return pb.ConsumeRequest(transport_ack=ack)
        if now >= self._sent_at + self._heartbeat_s:
            return pb.ConsumeRequest(heartbeat=pb.ChannelHeartbeat())
        settle = self.unsettled.next_request(now, self._received_tags.lowest_missing)
        return None if settle is None else pb.ConsumeRequest(settle=settle)

    def _wake_at(self) -> float:
        times = (
            self._received_tags.wake_at(self._unread),
            self.unsettled.wake_at,
            self._sent_at + self._heartbeat_s,
            self._last_frame_at + limits.HEARTBEAT_MS / 1000,
        )
        return min(each for each in times if each is not None)

    # --- called for the broker's answers ---

    def on_frame(self, now: float) -> None:
        """Restarts the heartbeat timeout, because a frame arrived or a stream begins."""
        self._last_frame_at = now

    def on_opened(self, opened: pb.ChannelOpened, now: float) -> bool:
        """Records that the stream is open; False if the broker has a different channel.

        False changes nothing: the broker no longer has the tags (C11).
        """
        same = opened.resumed and opened.instance == self._instance
        if self.ever_opened and not same:
            return False
        self._open(opened, now)
        return True

    def renew(self, opened: pb.ChannelOpened, now: float) -> list[PendingSettlement]:
        """Moves to a new channel of the broker: consumers and pulls are requested again (C17).

        Returns the settlements without an answer.
        """
        void = self._received_tags.highest
        left = self.unsettled.renew(void)
        self._received_tags = self._no_tags(void)
        self._open(opened, now)
        for subscription in self._subscriptions.values():
            subscription.renew(known_to_broker=bool(opened.instance))
        self._pulls = {n: pull for n, pull in self._pulls.items() if not pull.closed}
        for pull in self._pulls.values():
            pull.renew()
        self._unread = sum(each.rows for each in self._subscriptions.values())
        self._closed.clear()
        self._requests = deque(() if self.finishing else self._requests_to_repeat())
        return left

    def _open(self, opened: pb.ChannelOpened, now: float) -> None:
        self._instance = opened.instance
        self.announced = frozenset(FROM_WIRE[each] for each in opened.outcomes if each in FROM_WIRE)
        if opened.heartbeat_ms:
            self._heartbeat_s = min(limits.HEARTBEAT_SEND_MS, opened.heartbeat_ms) / 1000
        self.unsettled.settle_runs = opened.settle_runs
        self._sent_at = now
        self.opened = self.ever_opened = True

    def on_delivery(self, delivery: pb.Delivery, content: Content, now: float) -> Inbox | None:
        """Stores a frame of messages; returns the inbox that received new ones, if any.

        Converts the broker's tags to the tags that the application sees (C17).

        Raises:
            InternalError: The messages belong to no known consumer or pull.
        """
        if self.unsettled.void:
            tags = [tag + self.unsettled.void for tag in delivery.runs.first_tag]
            delivery.runs.first_tag[:] = tags
        spans = self._new_spans(delivery.runs, now)
        if not spans:
            return None
        inbox = self._inbox_of(delivery)
        if isinstance(inbox, Pull):
            inbox.left -= _rows(spans)
        elif isinstance(inbox, Subscription):
            inbox.known = True
        if not inbox.no_ack:
            for _, (first, last) in spans:
                self.unsettled.unread.add(first, last)
        if inbox.closed:
            self._release_unread(inbox, [tags for _, tags in spans])
        else:
            inbox.put(content, spans)
            self._count(inbox, _rows(spans))
        if isinstance(inbox, Pull):
            self._complete_pull(inbox)
        return inbox

    def on_settled(self, settled: pb.Settled) -> PendingSettlement | None:
        """Applies an answer to a `Settle`; returns its settlement once fully answered (C15)."""
        return self.unsettled.on_settled(settled.number, settled.settled)

    def on_get_empty(self, number: int) -> Pull | None:
        """Completes a pull whose queue has run out of ready messages (C9)."""
        pull = self._pulls.get(number)
        if pull is not None:
            pull.left = 0
            self._complete_pull(pull)
        return pull

    def on_cancelled(self, name: str, reason: AckqError) -> Subscription | None:
        """Marks a consumer as ended by the broker; arrived messages can be received and settled."""
        subscription = self._subscriptions.get(name)
        if subscription is not None and subscription.ended is None:
            subscription.ended = reason
        return subscription

    def on_disconnect(self, now: float) -> None:
        """Handles a disconnect: requests that may be lost are repeated on the next stream."""
        if not self.opened:
            return
        self.opened = False
        self._received_tags.on_disconnect(now)
        self.unsettled.on_disconnect()
        self._requests = deque(self._requests_to_repeat())

    def _requests_to_repeat(self) -> Iterable[pb.ConsumeRequest]:
        """The requests that restore all open consumers and pulls; all are idempotent."""
        if self._prefetch is not None:
            yield pb.ConsumeRequest(prefetch=pb.Prefetch(messages=self._prefetch))
        for name, subscription in self._subscriptions.items():
            if not subscription.known and subscription.ended is None:
                yield pb.ConsumeRequest(subscribe=subscription.request)
            if subscription.prefetch_changed:
                bound = pb.Prefetch(consumer=name, messages=subscription.request.prefetch)
                yield pb.ConsumeRequest(prefetch=bound)
        for name in self._closed:
            yield pb.ConsumeRequest(unsubscribe=pb.Unsubscribe(consumer=name))
        for pull in self._pulls.values():
            if not (pull.complete or pull.closed):
                yield pb.ConsumeRequest(get=pull.request)

    def _new_spans(self, runs: messages_pb2.DeliveryRuns, now: float) -> list[Span]:
        """The rows of a frame that had not arrived before, coalesced into spans."""
        spans: list[Span] = []
        row = 0
        for first, rows in zip(runs.first_tag, runs.rows, strict=True):
            for tags in self._received_tags.add(first, first + rows - 1, now):
                at = row + tags.first - first
                if spans and spans[-1].tags.last + 1 == tags.first and _end(spans[-1]) == at:
                    spans[-1] = Span(spans[-1].row, Range(spans[-1].tags.first, tags.last))
                else:
                    spans.append(Span(at, tags))
            row += rows
        return spans

    def _inbox_of(self, delivery: pb.Delivery) -> Inbox:
        inbox: Inbox | None
        name = delivery.consumer
        if delivery.get_number:
            inbox = self._pulls.get(delivery.get_number)
        else:
            inbox = self._subscriptions.get(name) or self._closed.get(name)
        if inbox is None:
            raise InternalError(
                f"The broker sent messages to consumer '{name}', pull {delivery.get_number}, which "
                "the channel does not have. Check that client and broker have the same version.",
                consumer=name,
            )
        return inbox

    def _complete_pull(self, pull: Pull) -> None:
        if pull.left <= 0:
            pull.complete = True
            self._forget_done(pull)

    def _forget_done(self, pull: Pull) -> None:
        """Forgets a pull for which nothing will arrive and nothing is unread."""
        if (pull.complete or (pull.closed and not pull.sent)) and not pull.rows:
            self._pulls.pop(pull.request.number, None)

    def _count(self, inbox: Inbox, rows: int) -> None:
        if isinstance(inbox, Subscription):
            self._unread += rows

    def _close_inbox(self, inbox: Inbox) -> None:
        inbox.closed = True
        self._count(inbox, -inbox.rows)
        self._release_unread(inbox, inbox.drain())

    def _release_unread(self, inbox: Inbox, runs: list[Range]) -> None:
        """Releases unread messages.

        Does nothing for a consumer without acks: closing it discards them (C10, NONE). Does nothing
        if the broker does not support RELEASED or the channel is ending: the end of the channel
        requeues them (C12).
        """
        if self.finishing or inbox.no_ack or Outcome.RELEASED not in self.announced:
            return
        if runs:
            self.unsettled.release_unread(runs)

    def _limit_lazy(self, prefetch: int) -> None:
        """Keeps lazy accepts from using up a prefetch."""
        if prefetch:
            bound = max(1, prefetch // 2)
            self.unsettled.lazy_limit = min(self.unsettled.lazy_limit, bound)


def _rows(spans: Iterable[Span]) -> int:
    return sum(tags.last - tags.first + 1 for _, tags in spans)


def _end(span: Span) -> int:
    return span.row + span.tags.last - span.tags.first + 1


def _names(outcomes: Iterable[Outcome]) -> str:
    return ", ".join(sorted(each.value for each in outcomes))
