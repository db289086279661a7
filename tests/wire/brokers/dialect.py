"""The words that scenarios speak: queues, publishers and channels, as any broker has them.

A dialect translates them into its protocol and adds nothing: what a scenario sees is what came over
the wire. Every wait ends at a deadline.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tests.fakes.relay import Relay
from tests.wire.brokers.streams import TIMEOUT_S, Answers, EventLog

T = TypeVar("T")


class Mode(enum.Enum):
    """How a publisher is answered (P1)."""

    CONFIRM = "confirm"
    TRANSACTION = "transaction"


class Outcome(enum.Enum):
    """What becomes of a delivered message (C4)."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    REJECTED = "rejected"
    RELEASED = "released"


NEGATIVE = (Outcome.FAILED, Outcome.REJECTED, Outcome.RELEASED)


@dataclass(frozen=True)
class Properties:
    """Properties of a queue (Q3); 0 and "" are none."""

    durable: bool = True
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject-publish"
    message_ttl_ms: int = 0
    expires_ms: int = 0
    delivery_limit: int = 0
    dead_letter_queue: str = ""
    redelivery_delay_ms: int = 0
    redelivery_delay_max_ms: int = 0
    drop_on_limit: bool = False


@dataclass(frozen=True)
class Message:
    """What is published; `key` names the queue unless an exchange is given (Q2)."""

    key: str
    body: bytes
    exchange: str = ""
    mandatory: bool = False
    persistent: bool = True
    ttl_ms: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ack_immediately: bool = False


@dataclass(frozen=True)
class Death:
    """How a message came to be a dead letter, the last time (C13)."""

    reason: str
    queue: str
    first_queue: str
    # Times that it died of this in that queue.
    count: int
    # Seconds since the Unix epoch.
    at: float


@dataclass(frozen=True)
class Delivery:
    """A message that came over a channel."""

    tag: int
    body: bytes
    queue: str
    redelivered: bool
    # Deliveries up to this one; None where the broker does not tell.
    count: int | None
    persistent: bool
    # Whether it still has a time to live of its own.
    expires: bool
    # Empty for a pull.
    consumer: str
    headers: dict[str, object]
    death: Death | None


@dataclass(frozen=True)
class Counts:
    """A queue as the broker counts it."""

    ready: int
    consumers: int


class Refused(Exception):  # noqa: N818 - a verdict of the broker, not a failure of the test
    """The broker said no.

    Attributes:
        condition: "precondition_failed", "not_found", "invalid", "aborted" or "other".
        code: The protocol's own code.
        text: What the broker said.
        fields: What it said about which things, by name, where its protocol has that.
    """

    def __init__(
        self, condition: str, code: str, text: str, fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{condition} ({code}): {text}")
        self.condition = condition
        self.code = code
        self.text = text
        self.fields = dict(fields or {})


class Cut(Exception):  # noqa: N818 - mostly what the scenario asked for
    """The connection went without a word of the broker."""


class Publisher(Protocol):
    """A publisher's stream; its numbers count from 1 (P2)."""

    answers: Answers

    def publish(self, key: str, *bodies: bytes, **fields: object) -> list[int]:
        """Publishes bodies as `Message`s with these fields; their numbers."""
        return self.publish_all(*(Message(key, body, **fields) for body in bodies))

    def publish_and_wait(self, key: str, *bodies: bytes, **fields: object) -> None:
        """Publishes bodies and waits for all answers."""
        self.publish(key, *bodies, **fields)
        self.answers.all()

    def publish_all(self, *messages: Message) -> list[int]:
        """Publishes messages, all to one exchange; their numbers."""

    def ask_for(self, mode: Mode) -> None:
        """Asks a publisher that has a mode for this one (P1); raises Refused."""

    def commit(self) -> None:
        """Returns when the commit was answered (P13)."""

    def rollback(self) -> None:
        """Returns when the rollback was answered (P13)."""

    def received(self) -> None:
        """Returns when the broker has looked at what was published, if it does so by itself."""


class Channel(Protocol):
    """A consume stream with its delivery tags (C1); its answers wake the log."""

    log: EventLog[Any]
    deliveries: deque[Delivery]
    ended: deque[str]

    def consume(
        self,
        queue: str,
        *,
        prefetch: int = 0,
        no_ack: bool = False,
        outcomes: tuple[Outcome, ...] = NEGATIVE,
    ) -> str:
        """Starts a consumer; its name."""

    def cancel(self, consumer: str) -> None:
        """Ends a consumer; what it holds stays unacked on the channel."""

    def prefetch(self, messages: int) -> None:
        """Bounds what is unacked on the channel as a whole; 0: no bound (C8)."""

    def get(self, queue: str, messages: int = 1, *, no_ack: bool = False) -> list[Delivery]:
        """Pulls up to so many (C9)."""

    def delivery(self, timeout_s: float = TIMEOUT_S) -> Delivery:
        """The next delivery to a consumer of the channel."""
        return self._next(self.deliveries, timeout_s, "a delivery")

    def settle(
        self,
        delivery: Delivery | int,
        outcome: Outcome = Outcome.ACCEPTED,
        *,
        multiple: bool = False,
        reason: str = "",
        delay_ms: int = 0,
    ) -> None:
        """Settles a delivery or a bare tag (C4); returns when it took effect, or raises Refused."""

    def cancelled(self, timeout_s: float = TIMEOUT_S) -> str:
        """The next consumer that the broker ended."""
        return self._next(self.ended, timeout_s, "a cancel")

    def close(self) -> None:
        """Ends the channel in good order."""

    def _next(self, arrived: deque[T], timeout_s: float, what: str) -> T:
        return self.log.wait(lambda: arrived.popleft() if arrived else None, timeout_s, what)


class Connection(Protocol):
    """A client's connection, over a relay of its own."""

    relay: Relay

    def publisher(self, mode: Mode = Mode.CONFIRM) -> Publisher:
        """Opens a publisher."""

    def channel(self) -> Channel:
        """Opens a channel."""

    def cut(self) -> None:
        """Breaks the connection without a word to the broker."""
        self.relay.cut()

    def silence(self) -> None:
        """Lets nothing through any more, and leaves the connection standing."""
        self.relay.hold()

    def close(self) -> None:
        """Ends it, and everything on it."""


class Dialect(Protocol):
    """A broker under test, spoken to in its protocol."""

    name: str
    # Options of `connect` for the shortest heartbeat that a client can have (C12).
    short_heartbeat: dict[str, int]

    def connect(self) -> Connection:
        """A new connection."""

    def declare(self, queue: str, properties: Properties) -> None:
        """Makes a queue, or confirms it (Q1)."""

    def delete(self, queue: str, *, force: bool = False, if_empty: bool = False) -> int:
        """Removes a queue (Q4); its ready messages."""

    def purge(self, queue: str) -> int:
        """Removes ready messages; how many (Q4)."""

    def counts(self, queue: str) -> Counts:
        """Looks at a queue; raises Refused when there is none."""

    def declare_exchange(self, exchange: str, kind: str, *, durable: bool = True) -> None:
        """Makes an exchange, or confirms it (Q2)."""

    def delete_exchange(self, exchange: str) -> None:
        """Removes an exchange and its bindings."""

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        """Binds (Q2)."""

    def unbind(self, exchange: str, queue: str, key: str = "") -> None:
        """Unbinds (Q2)."""

    def crash(self) -> None:
        """SIGKILL, and a new start on the same data."""

    def disk_alarm(self, *, on: bool) -> None:
        """Has the broker find its disk full, or with room again (P14)."""
