"""Facts about a queue, from listings of the broker taken at about the same instant (Q9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ackq.info import (
    BatchInfo,
    Holdings,
    LinkInfo,
    OutboundReport,
    QueueInfo,
    ServerInfo,
    SessionInfo,
)


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Facts about a queue, its readers and writers, its links and its broker.

    Attributes:
        name: The queue asked for.
        broker: The broker's server info.
        queue: The queue; None: there is none of this name.
        holdings: The holdings of its messages, its consumers, and figures of waiting messages.
        sessions: The sessions that read the queue or hold messages of it, by name; without those
            that the user may not see.
        batches: Batches of writers that have rows staged for it.
        dead_letters: Its dead-letter queue; None: it has none, or there is none of that name.
        sources: The queues whose dead letters it takes.
        links: The inbound links that bring messages to it.
        outbound: The outbound links that publish its messages to a remote broker.
        serving: Whether the broker reports that it serves; False while it starts or stops.
        denied: The attributes among these that the user has no permission to see.
    """

    name: str
    broker: ServerInfo
    queue: QueueInfo | None = None
    holdings: Holdings = field(default_factory=Holdings)
    sessions: dict[str, SessionInfo] = field(default_factory=dict)
    batches: tuple[BatchInfo, ...] = ()
    dead_letters: QueueInfo | None = None
    sources: tuple[str, ...] = ()
    serving: bool = True
    links: tuple[LinkInfo, ...] = ()
    outbound: tuple[OutboundReport, ...] = ()
    denied: frozenset[str] = frozenset()

    @property
    def now_us(self) -> int:
        """The broker's time; 0 for a broker that does not report it."""
        return self.broker.now_us

    @property
    def limited(self) -> bool:
        """Whether the user may not see all of the queue's state."""
        names = {each.session for each in self.holdings.holdings if each.session}
        names.update(self.queue.sessions if self.queue is not None else ())
        return bool(self.denied or names - self.sessions.keys())

    @property
    def messages(self) -> int:
        """Number of messages that count towards a bound with reject-publish (Q3)."""
        if self.queue is None:
            return 0
        return self.queue.ready + self.queue.unacked + self.queue.delayed + self.queue.staged
