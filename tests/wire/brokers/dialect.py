"""The vocabulary of scenarios: queues, publishers and channels, as any broker has them.

A dialect translates it into its protocol and adds nothing: a scenario sees only what came over the
wire. Every wait ends at a deadline.
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
    """The mode of a publisher: how it is answered (P1)."""

    CONFIRM = "confirm"
    TRANSACTION = "transaction"


class Outcome(enum.Enum):
    """The outcome of a delivered message (C4)."""

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
    """A message to publish; `key` names the queue unless an exchange is given (Q2)."""

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
    """How a message became a dead letter, the last time (C13)."""

    reason: str
    queue: str
    first_queue: str
    # Number of times it was dead-lettered for this reason in that queue.
    count: int
    # Seconds since the Unix epoch.
    at: float


@dataclass(frozen=True)
class Delivery:
    """A message delivered over a channel."""

    tag: int
    body: bytes
    queue: str
    redelivered: bool
    # Deliveries up to this one; None if the broker does not report it.
    count: int | None
    persistent: bool
    # Whether it still has a TTL of its own.
    expires: bool
    # Empty for a pull.
    consumer: str
    headers: dict[str, object]
    death: Death | None


@dataclass(frozen=True)
class Counts:
    """The broker's counts of a queue."""

    ready: int
    consumers: int


class Refused(Exception):  # noqa: N818 - a verdict of the broker, not a failure of the test
    """A refusal by the broker.

    Attributes:
        condition: "precondition_failed", "not_found", "invalid", "aborted" or "other".
        code: The protocol's own code.
        text: The broker's error text.
        fields: The objects that the error names, by field, where the protocol has that.
    """

    def __init__(self, condition: str, code: str, text: str, fields: Mapping[str, str]) -> None:
        super().__init__(f"{condition} ({code}): {text}")
        self.condition, self.code, self.text, self.fields = condition, code, text, dict(fields)


class Cut(Exception):  # noqa: N818 - mostly what the scenario asked for
    """The connection ended without an error from the broker."""


class Publisher(Protocol):
    """A publisher's stream; its numbers count from 1 (P2)."""

    answers: Answers

    def publish(self, key: str, *bodies: bytes, **fields: object) -> list[int]:
        """Publishes bodies as `Message`s with these fields; returns their numbers."""
        return self.publish_all(*(Message(key, body, **fields) for body in bodies))

    def publish_and_wait(self, key: str, *bodies: bytes, **fields: object) -> None:
        """Publishes bodies and waits for all answers."""
        self.publish(key, *bodies, **fields)
        self.answers.all()

    def publish_all(self, *messages: Message) -> list[int]:
        """Publishes messages, all to one exchange; returns their numbers."""

    def ask_for(self, mode: Mode) -> None:
        """Asks a publisher that has a mode for this one (P1); raises Refused."""

    def commit(self) -> None:
        """Commits the transaction, and waits for the answer (P13)."""

    def rollback(self) -> None:
        """Rolls the transaction back, and waits for the answer (P13)."""

    def received(self) -> None:
        """Waits until the broker has handled the published messages, if it does so by itself."""


class Channel(Protocol):
    """A consume stream with its delivery tags (C1); its answers wake the log."""

    log: EventLog[Any]
    deliveries: deque[Delivery]
    ended: deque[str]

    def consume(self, queue, *, prefetch=0, no_ack=False, outcomes=NEGATIVE):
        """Starts a consumer; returns its name."""

    def cancel(self, consumer: str) -> None:
        """Ends a consumer; its deliveries stay unacked on the channel."""

    def prefetch(self, messages: int) -> None:
        """Bounds the unacked messages of the whole channel; 0: no bound (C8)."""

    def get(self, queue: str, messages: int = 1, *, no_ack: bool = False) -> list[Delivery]:
        """Pulls up to `messages` messages (C9)."""

    def delivery(self, timeout_s: float = TIMEOUT_S) -> Delivery:
        """Waits for the next delivery to a consumer of the channel."""
        return self._next(self.deliveries, timeout_s, "a delivery")

    def settle(self, delivery, outcome=Outcome.ACCEPTED, *, multiple=False, reason="", delay_ms=0):
        """Settles a delivery or a bare tag (C4); returns when it took effect, or raises Refused."""

    def cancelled(self, timeout_s: float = TIMEOUT_S) -> str:
        """Waits for the next consumer that the broker ends; returns its name."""
        return self._next(self.ended, timeout_s, "a cancel")

    def close(self) -> None:
        """Closes the channel."""

    def _next(self, arrived: deque[T], timeout_s: float, what: str) -> T:
        return self.log.wait(lambda: arrived.popleft() if arrived else None, timeout_s, what)


class Connection(Protocol):
    """A client's connection, through its own relay."""

    relay: Relay

    def publisher(self, mode: Mode = Mode.CONFIRM) -> Publisher:
        """Opens a publisher."""

    def channel(self) -> Channel:
        """Opens a channel."""

    def cut(self) -> None:
        """Cuts the connection without notice to the broker."""
        self.relay.cut()

    def silence(self) -> None:
        """Stops all traffic, but keeps the connection open."""
        self.relay.hold()

    def close(self) -> None:
        """Closes the connection, and everything on it."""


class Dialect(Protocol):
    """A broker under test, called in its protocol."""

    name: str
    # Options of `connect` for the shortest heartbeat that a client can have (C12).
    short_heartbeat: dict[str, int]

    def connect(self) -> Connection:
        """Opens a new connection."""

    def declare(self, queue: str, properties: Properties) -> None:
        """Declares a queue (Q1)."""

    def delete(self, queue: str, *, force: bool = False, if_empty: bool = False) -> int:
        """Deletes a queue (Q4); returns the number of its ready messages."""

    def purge(self, queue: str) -> int:
        """Purges the ready messages; returns how many (Q4)."""

    def counts(self, queue: str) -> Counts:
        """The counts of a queue; raises Refused if it does not exist."""

    def declare_exchange(self, exchange: str, kind: str, *, durable: bool = True) -> None:
        """Declares an exchange (Q2)."""

    def delete_exchange(self, exchange: str) -> None:
        """Deletes an exchange and its bindings."""

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        """Binds a queue to an exchange (Q2)."""

    def unbind(self, exchange: str, queue: str, key: str = "") -> None:
        """Unbinds a queue from an exchange (Q2)."""

    def crash(self) -> None:
        """Kills the broker by SIGKILL, and starts it again on the same data."""

    def disk_alarm(self, *, on: bool) -> None:
        """Simulates a full disk for the broker, or ends that (P14)."""
