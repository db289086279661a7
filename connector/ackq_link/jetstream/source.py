"""A durable pull consumer of a JetStream stream as the source of a link. Rules L1, L14, L30.

Invariant: nothing is declared or changed at the remote broker, and nothing is taken of a consumer
that a link cannot hold messages of.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import CutError, Limits, Positions, QueueLimits
from ackq_link.jetstream.address import NatsAddress
from ackq_link.jetstream.connection import NatsConnection
from ackq_link.jetstream.subscription import Pulling, StreamSubscription

_NS: Final = 1_000_000_000
# A message that is not acknowledged is redelivered after AckWait; what the edge remembers of an
# acknowledgement in doubt it remembers for a day (L10).
_MOST_WAIT_S: Final = 12 * 3600.0
_UNKNOWN: Final = (
    "sync_interval cannot be asked: the server writes what it has answered to disk every 2 minutes"
    " unless that is set to always, and a power cut takes back what it had not written"
)


@dataclass
class LearntStream:
    """The stream as it was learnt first.

    Attributes:
        created: Its creation time; empty: not known yet.
        subscription: The link's newest; a stream that is another one ends it, and it signs for
            what it holds by the AckWait that was learnt last.
    """

    created: str = ""
    subscription: StreamSubscription | None = None


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A durable pull consumer, which must exist, as the source of a link.

    Args:
        address: The server.
        stream: The stream.
        consumer: The consumer's durable name.
        name: The link's name.
        limits: The window; the consumer's MaxAckPending must not be below it.
        told: The limits that the user set.
    """

    address: NatsAddress
    stream: str
    consumer: str
    name: str
    limits: Limits
    told: QueueLimits = field(default_factory=QueueLimits)
    seen: LearntStream = field(default_factory=LearntStream, compare=False)

    @property
    def place(self) -> str:
        """The stream and the consumer."""
        return f"{self.stream}/{self.consumer}"

    @property
    def identity(self) -> str:
        """The protocol, host, port, stream and consumer; once learnt the stream's creation time."""
        made = f" created {self.seen.created}" if self.seen.created else ""
        return f"nats://{self.address.place}, stream {self.stream}{made}, consumer {self.consumer}"

    async def learn(self) -> QueueLimits:
        """Learns the limits of stream and consumer (L14), and the newest AckWait (L31).

        Raises:
            CutError: The server is away; or, with a refusal, stream or consumer does not exist, is
                not one that a link can take from, or was created again. That ends the subscription,
                too.
        """
        connection = await self._open()
        try:
            stream, consumer, _ = await self._ask(connection)
        finally:
            await connection.close()
        if self.seen.subscription is not None:
            self.seen.subscription.keep_within(waits(consumer)[0])
        return limits_of(self.stream, self.consumer, stream, consumer).overridden(self.told)

    async def subscribe(self) -> StreamSubscription:
        """Connects and pulls. Raises CutError, with a refusal if a retry cannot mend it."""
        connection = await self._open()
        try:
            _, consumer, created = await self._ask(connection)
            subscription = StreamSubscription(
                connection,
                self.limits,
                Pulling(
                    f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}",
                    consumer.get("max_batch") or self.limits.window_messages,
                    waits(consumer)[0],
                    consumer.get("max_expires", 0) / _NS,
                    consumer.get("max_bytes", 0),
                    consumer.get("max_ack_pending", 0),
                    created,
                    waits(consumer)[1],
                ),
                Sequences(self.stream, self.seen.created),
            )
            self.seen.subscription = subscription
            await subscription.start()
        except BaseException:
            await connection.close()
            raise
        return subscription

    async def _open(self) -> NatsConnection:
        connection = NatsConnection(self.address, self.place)
        await connection.open(self.name)
        return connection

    async def _ask(self, connection: NatsConnection) -> tuple[dict[str, Any], dict[str, Any], str]:
        """The checked configurations of stream and consumer, and the consumer's creation time."""
        stream = await connection.ask(f"STREAM.INFO.{self.stream}", created=str, config=dict)
        place = self.place.replace("/", ".")
        consumer = await connection.ask(f"CONSUMER.INFO.{place}", created=str, config=dict)
        created = stream["created"]
        reason = refusal(self.place, consumer["config"], self.limits.window_messages)
        another = bool(self.seen.created) and created != self.seen.created
        if another:
            reason = (
                f"the stream '{self.stream}' was deleted and created again at {created}: its"
                f" messages are others under the same numbers. See what link {self.name} still"
                f" holds (ackq link show {self.name}), remove it (ackq link remove {self.name}"
                " --forget), and start it again."
            )
        if reason:
            error = PreconditionFailedError(f"{self.address.url}: {reason}")
            cut = CutError(error.message, error)
            if another and self.seen.subscription is not None:
                self.seen.subscription.end(cut)
            raise cut
        self.seen.created = created
        return stream["config"], consumer["config"], consumer["created"]


class Sequences:
    """The origin keys of a stream's sequences (L30).

    Args:
        stream: The stream.
        created: Its creation time.
    """

    def __init__(self, stream: str, created: str) -> None:
        digest = blake2b(f"{stream}\0{created}".encode(), digest_size=8, person=b"position")
        # The edge looks a key up by its first half; zeros are no key.
        self._half = int.from_bytes(digest.digest(), "little") or 1

    def positions(self, sequences: Sequence[int], stored_ns: Sequence[int]) -> Positions:
        """The keys of messages, and the times at which the stream stored them."""
        half = self._half
        halves = [each for sequence in sequences for each in (sequence, half)]
        return Positions(
            struct.pack(f"<{len(halves)}Q", *halves), struct.pack(f"<{len(stored_ns)}Q", *stored_ns)
        )


def waits(consumer: Mapping[str, Any]) -> tuple[float, float]:
    """The shortest and longest time in seconds after which a held message is redelivered."""
    times = [consumer.get("ack_wait", 30 * _NS), *(consumer.get("backoff") or ())]
    return min(times) / _NS, max(times) / _NS


def refusal(place: str, consumer: Mapping[str, Any], window: int) -> str:
    """Why a link cannot take from a consumer, and the remedy; empty: it can."""
    stream, _, name = place.partition("/")
    edit = f"nats consumer edit {stream} {name}"
    pending = consumer.get("max_ack_pending", 0)
    longest_s = waits(consumer)[1]
    bad = {
        "is a push consumer": "deliver_subject" in consumer,
        f"has the ack policy '{consumer.get('ack_policy')}'": consumer.get("ack_policy")
        != "explicit",
        "is not durable": not consumer.get("durable_name"),
        "delivers headers only": consumer.get("headers_only", False),
        "has priority groups": bool(consumer.get("priority_groups")),
    }
    for what, found in bad.items():
        if found:
            return (
                f"the consumer '{place}' {what}. A link takes from a durable pull consumer with"
                f" explicit acknowledgements: nats consumer add {stream} NAME --pull --ack=explicit"
                " --deliver=all --max-deliver=-1"
            )
    if 0 < pending < window:
        return (
            f"the consumer '{place}' has a MaxAckPending of {pending}, below the link's prefetch of"
            f" {window}. Raise it ({edit} --max-pending={window}), or lower the prefetch."
        )
    if longest_s > _MOST_WAIT_S:
        return (
            f"the consumer '{place}' redelivers after {longest_s:.0f} s; a link needs at most"
            f" {_MOST_WAIT_S:.0f} s, as the local broker remembers for a day. Lower it: {edit}"
            " --wait=30s"
        )
    return ""


def limits_of(
    name: str, durable: str, stream: Mapping[str, Any], consumer: Mapping[str, Any]
) -> QueueLimits:
    """The limits of a stream and a consumer, from their configurations."""
    most = consumer.get("max_deliver", -1)
    warnings, notes = [], [_UNKNOWN]
    if stream.get("max_age"):
        age_s = stream["max_age"] / _NS
        warnings.append(f"the stream removes messages after {age_s:.0f} s, taken or not")
    bounds = [stream.get(f"max_{each}", -1) for each in ("msgs", "bytes", "msgs_per_subject")]
    if stream.get("discard") != "new" and any(each > 0 for each in bounds):
        warnings.append(
            "the stream drops its oldest messages when it is full, taken or not; with discard=new"
            " it refuses new ones at the publisher"
        )
    if consumer.get("inactive_threshold"):
        gone_s = consumer["inactive_threshold"] / _NS
        warnings.append(f"the consumer is deleted when no link ran for {gone_s:.0f} s")
    if consumer.get("mem_storage") or stream.get("storage") == "memory":
        warnings.append("stream or consumer is in memory alone: a server that ends forgets it")
    if stream.get("num_replicas", 1) == 1:
        notes.append("the stream has one replica: it is away while its server is")
    if stream.get("retention") == "limits":
        notes.append("an acknowledgement removes nothing from the stream: its retention is limits")
    return QueueLimits(
        kind="jetstream",
        consumer_timeout_s=0,  # signs of progress keep held messages (L31)
        delivery_limit=0 if most <= 0 else max(1, most - 1),
        dead_letters=False,
        remedy=f"nats consumer edit {name} {durable} --max-deliver=-1, or take the advisories"
        " $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES and MSG_TERMINATED of it and say"
        " dead-letters=true",
        warnings=tuple(warnings),
        notes=tuple(notes),
    )
