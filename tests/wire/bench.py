"""The bench of a scenario: a broker under test, fresh names, and a cleanup at the end."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import pytest

from tests.eventually import equals, eventually
from tests.wire.brokers.dialect import (
    Channel,
    Connection,
    Delivery,
    Dialect,
    Mode,
    Properties,
    Refused,
)
from tests.wire.differences import Differences

D = TypeVar("D", bound=Dialect)

# How long to wait for something that the broker must not do.
SILENCE_S = 0.15


class Bench(Generic[D]):
    """One scenario's access to a broker.

    Attributes:
        broker: The dialect, for calls to the broker as a whole.
    """

    def __init__(self, broker: D, scenario: str) -> None:
        self.broker = broker
        self._differences = Differences(broker.name, scenario)
        self._names = f"conformance-{secrets.token_hex(4)}"
        self._made = 0
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self._connections: list[Connection] = []

    # --- creating ---

    def name(self, word: str) -> str:
        """Returns a name that is not used yet."""
        self._made += 1
        return f"{self._names}-{word}-{self._made}"

    def queue(self, name: str = "", **properties: Any) -> str:
        """Declares a queue with these `Properties`; returns its name."""
        name = name or self.name("queue")
        self._queues.append(name)
        self.broker.declare(name, Properties(**properties))
        return name

    def exchange(self, kind: str) -> str:
        """Declares an exchange; returns its name."""
        name = self.name(kind)
        self._exchanges.append(name)
        self.broker.declare_exchange(name, kind)
        return name

    def connect(self, **options: Any) -> Any:
        """Opens a connection, which is closed at the end of the scenario."""
        connection = self.broker.connect(**options)
        self._connections.append(connection)
        return connection

    def publisher(self, mode: Mode = Mode.CONFIRM, **options: Any) -> Any:
        """Opens a publisher on its own connection."""
        return self.connect().publisher(mode, **options)

    def channel(self, **options: Any) -> Any:
        """Opens a channel on its own connection."""
        return self.connect().channel(**options)

    def fill(self, queue: str, *bodies: bytes, **fields: Any) -> None:
        """Publishes bodies to a queue and waits for their confirms."""
        publisher = self.publisher()
        numbers = publisher.publish(queue, *bodies, **fields)
        assert publisher.answers.all().confirmed == set(numbers)

    def filled(self, *bodies: bytes, **properties: Any) -> str:
        """Declares a queue and fills it with these bodies; returns its name."""
        queue = self.queue(**properties)
        self.fill(queue, *bodies)
        return queue

    def dead_lettering(self, *bodies: bytes, **properties: Any) -> tuple[str, str]:
        """Declares a queue filled with these bodies, and its dead-letter queue; returns both."""
        dead = self.queue()
        queue = self.queue(dead_letter_queue=dead, **properties)
        if bodies:
            self.fill(queue, *bodies)
        return queue, dead

    # --- inspecting ---

    def ready(self, queue: str) -> int:
        """The number of ready messages of a queue."""
        return self.broker.counts(queue).ready

    def wait_ready(self, queue: str, messages: int) -> None:
        """Waits until the queue has this number of ready messages."""
        eventually("ready messages", lambda: self.ready(queue), equals(messages), every_s=0.01)

    def drain(self, queue: str) -> list[bytes]:
        """Takes all ready messages off a queue; returns their bodies in order."""
        return [delivery.body for delivery in self.channel().get(queue, 1_000, no_ack=True)]

    def dead(self, queue: str, messages: int = 1) -> list[Delivery]:
        """Waits for this number of messages in a dead-letter queue, and takes them."""
        self.wait_ready(queue, messages)
        return self.channel().get(queue, messages, no_ack=True)

    def dead_now(self, queue: str) -> list[Delivery]:
        """Takes the messages of a dead-letter queue, after all earlier requests took effect."""
        self.fill(self.queue(), b"done")
        return self.channel().get(queue, 1_000, no_ack=True)

    # --- asserting ---

    def expect(self, aspect: str, actual: object, by_rule: object) -> None:
        """Asserts the rule's value, or exactly the one that DIFFERENCES lists for this broker."""
        self._differences.expect(aspect, actual, by_rule)

    # --- the end ---

    def tidy(self) -> None:
        """Closes and deletes the objects that the scenario created."""
        for connection in self._connections:
            connection.close()
        for queue in self._queues:
            with contextlib.suppress(Refused):
                self.broker.delete(queue, force=True)
        for exchange in self._exchanges:
            with contextlib.suppress(Refused):
                self.broker.delete_exchange(exchange)

    def judged(self) -> None:
        """Fails if a difference listed for this scenario was not checked."""
        self._differences.finished()


@contextlib.contextmanager
def refused_as(condition: str, code: str = "") -> Iterator[pytest.ExceptionInfo[Refused]]:
    """Asserts that the broker refuses the enclosed request for this reason, and with this code."""
    with pytest.raises(Refused) as refused:
        yield refused
    assert (refused.value.condition, code and refused.value.code) == (condition, code)


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    """The bodies of deliveries."""
    return [delivery.body for delivery in deliveries]


def taken(channel: Channel, messages: int) -> list[Delivery]:
    """Waits for the next deliveries of a channel."""
    return [channel.delivery() for _ in range(messages)]


def silent(channel: Channel) -> bool:
    """Whether the channel gets no delivery for a while."""
    with contextlib.suppress(TimeoutError):
        channel.delivery(SILENCE_S)
        return False
    return True
