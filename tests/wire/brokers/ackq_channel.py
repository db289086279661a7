"""A consume stream in the ackq protocol."""

from __future__ import annotations

import secrets
from collections import deque
from datetime import datetime
from typing import Any

from ackq.v1 import consuming_pb2
from tests.fakes.raw_client import Delivered, delivered, last_tag
from tests.wire.brokers.ackq_stream import Stream
from tests.wire.brokers.dialect import NEGATIVE, Channel, Death, Delivery, Outcome
from tests.wire.brokers.streams import EventLog

_OUTCOMES = {each: consuming_pb2.Outcome.Value(f"OUTCOME_{each.name}") for each in Outcome}


class AckqChannel(Channel):
    """A channel that sends a transport ack for every frame, unless told otherwise.

    Attributes:
        channel_id: Its id.
        opened: The broker's answer to the open, once received.
        log: Every later answer, as the header of its frame; deliveries one by one.

    Args:
        stub: Of ConsumingService.
        channel_id: Of a channel that was cut (C11); None: a new one.
        window_messages: Deliveries without a transport ack, at most (C11).
        transport_acks: Whether to send them.
    """

    def __init__(self, stub, channel_id=None, *, window_messages=10_000, transport_acks=True):
        self.channel_id = channel_id or secrets.token_bytes(16)
        self.opened: consuming_pb2.ChannelOpened | None = None
        self.log: EventLog[Any] = EventLog()
        self._transport_acks = transport_acks
        self.deliveries: deque[Delivery] = deque()
        self._pulled: dict[int, list[Delivery]] = {}
        self._short: set[int] = set()
        self._settled: dict[int, int] = {}
        self.ended: deque[str] = deque()
        self._number = 0
        self._last_tag = 0
        opening = consuming_pb2.ChannelOpen(
            channel_id=self.channel_id, window_messages=window_messages, label="conformance"
        )
        self._stream = Stream(
            stub.Consume, consuming_pb2.ConsumeRequest(open=opening), self.log, self._take
        )

    def consume(self, queue, *, prefetch=0, no_ack=False, outcomes=NEGATIVE):
        self._number += 1
        consumer = f"consumer-{self._number}"
        declared = [_OUTCOMES[outcome] for outcome in outcomes]
        fields = {"consumer": consumer, "queue": queue, "prefetch": prefetch, "no_ack": no_ack}
        self.send(subscribe=consuming_pb2.Subscribe(outcomes=declared, **fields))
        return consumer

    def cancel(self, consumer: str) -> None:
        self.send(unsubscribe=consuming_pb2.Unsubscribe(consumer=consumer))

    def prefetch(self, messages: int, consumer: str = "") -> None:
        """Sets the prefetch of the whole channel, or of one consumer (C8)."""
        self.send(prefetch=consuming_pb2.Prefetch(consumer=consumer, messages=messages))

    def get(self, queue: str, messages: int = 1, *, no_ack: bool = False) -> list[Delivery]:
        number = self._numbered()
        fields = {"queue": queue, "messages": messages, "no_ack": no_ack}
        self.send(get=consuming_pb2.Get(number=number, **fields))

        def complete() -> list[Delivery] | None:
            pulled = self._pulled.get(number, [])
            return pulled if len(pulled) == messages or number in self._short else None

        return self.log.wait(complete, what="the answer to a pull")

    def settle(self, delivery, outcome=Outcome.ACCEPTED, *, multiple=False, reason="", delay_ms=0):
        """Settles a delivery or a bare tag; returns the number of settled messages (C15)."""
        number = self._numbered()
        tag = delivery if isinstance(delivery, int) else delivery.tag
        how = {"multiple": multiple, "outcome": _OUTCOMES[outcome], "reason": reason}
        settle = consuming_pb2.Settle(delivery_tag=tag, delay_ms=delay_ms, number=number, **how)
        self.send(settle=settle)
        return self.log.wait(lambda: self._settled.get(number), what="the answer to a settlement")

    def transport_ack(self, tag: int) -> None:
        """Sends a transport ack for everything up to this tag (C11)."""
        self.send(transport_ack=consuming_pb2.TransportAck(delivery_tag=tag))

    def close(self) -> None:
        """Half-closes, and waits until the broker ends the stream."""
        self._stream.half_close()

    def send(self, **kind: Any) -> None:
        """Sends one request."""
        self._stream.send(consuming_pb2.ConsumeRequest(**kind))

    def _numbered(self) -> int:
        self._number += 1
        return self._number

    def _take(self, response: consuming_pb2.ConsumeResponse) -> None:
        header = response.header
        match header.WhichOneof("kind"):
            case "opened":
                self.opened = header.opened
                self.log.wake()
            case "delivery":
                self._take_delivery(response)
            case "settled":
                self._settled[header.settled.number] = header.settled.settled
                self.log.add(header.settled)
            case "get_empty":
                self._short.add(header.get_empty.number)
                self.log.add(header.get_empty)
            case "cancelled":
                self.ended.append(header.cancelled.consumer)
                self.log.add(header.cancelled)
            case "heartbeat":
                self.send(heartbeat=consuming_pb2.ChannelHeartbeat())
            case other:
                raise AssertionError(f"an answer of kind {other}")

    def _take_delivery(self, response: consuming_pb2.ConsumeResponse) -> None:
        last = last_tag(response.header.delivery)
        if self._transport_acks and last <= self._last_tag:
            return  # sent again, as the ack of its first coming took over 2 s (C11)
        self._last_tag = last
        for message in delivered(response):
            delivery = _delivery(message)
            if message.get_number:
                self._pulled.setdefault(message.get_number, []).append(delivery)
            else:
                self.deliveries.append(delivery)
            self.log.add(delivery)
        if self._transport_acks:
            self.transport_ack(last)


def _delivery(message: Delivered) -> Delivery:
    headers = dict(message.row.get("headers") or ())
    return Delivery(
        tag=message.tag,
        body=message.body,
        queue=message.queue,
        redelivered=message.count > 1,
        count=message.count,
        persistent=message.persistent,
        expires=message.row.get("expires_at") is not None,
        consumer=message.consumer,
        headers=headers,
        death=_death(headers),
    )


def _death(headers: dict[str, str]) -> Death | None:
    if "ackq-dead-queue" not in headers:
        return None
    return Death(
        reason=headers["ackq-dead-cause"],
        queue=headers["ackq-dead-queue"],
        first_queue=headers["ackq-dead-first-queue"],
        count=int(headers["ackq-dead-count"]),
        at=datetime.fromisoformat(headers["ackq-dead-at"]).timestamp(),
    )
