"""The facts of a queue, as the broker's listings give them at about one instant (Q9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ackq.v1 import admin_pb2 as pb
from ackq.v1 import links_pb2, publishing_pb2, sessions_pb2


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known of a queue and of what surrounds it.

    Attributes:
        name: The queue asked for.
        broker: The broker.
        queue: The queue; None: there is none of this name.
        holdings: Who holds its messages, its consumers, and what waits.
        sessions: The sessions that read it or hold some of it, by name.
        batches: Batches of writers that have rows staged for it.
        dead_letters: Its dead-letter queue; None: it has none, or there is none of that name.
        sources: The queues whose dead letters it takes.
        links: The links that bring messages to it.
        serving: Whether the broker says that it serves: False while it starts or stops.
    """

    name: str
    broker: pb.ServerInfoResponse
    queue: pb.QueueInfo | None = None
    holdings: pb.ListHoldingsResponse = field(default_factory=pb.ListHoldingsResponse)
    sessions: dict[str, sessions_pb2.SessionInfo] = field(default_factory=dict)
    batches: tuple[publishing_pb2.BatchInfo, ...] = ()
    dead_letters: pb.QueueInfo | None = None
    sources: tuple[str, ...] = ()
    serving: bool = True
    links: tuple[links_pb2.LinkInfo, ...] = ()

    @property
    def now_us(self) -> int:
        """The broker's time; 0 for a broker that does not tell it."""
        return self.broker.now_us

    @property
    def messages(self) -> int:
        """All messages that count for a bound with reject-publish (Q3)."""
        if self.queue is None:
            return 0
        return self.queue.ready + self.queue.unacked + self.queue.delayed + self.queue.staged
