"""Queue rates from two looks at a broker, and the readers of each queue, for `ackq top`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ackq.info import QueueInfo, SessionInfo


class Look(NamedTuple):
    """The queues, sessions and publisher block of a broker at one moment.

    Attributes:
        at_s: The moment, in monotonic seconds.
        queues: All queues.
        sessions: All sessions.
        blocked: Why publishers are blocked; empty: they are not.
    """

    at_s: float
    queues: tuple[QueueInfo, ...]
    sessions: tuple[SessionInfo, ...]
    blocked: str = ""


class QueueRow(NamedTuple):
    """A queue as `ackq top` shows it.

    Attributes:
        in_per_s: Messages published per second; None on the first look.
        out_per_s: Messages accepted per second; None on the first look.
        sessions: The sessions that read it, the oldest lease first, sessions without one last.
    """

    queue: str
    ready: int
    unacked: int
    delayed: int
    oldest_age_ms: int
    consumers: int
    in_per_s: float | None
    out_per_s: float | None
    sessions: tuple[SessionInfo, ...]

    @property
    def holder(self) -> str:
        """The readers of the queue in a few words: sessions and consumers."""
        leased = [each for each in self.sessions if each.leased]
        words = [_reader(each) for each in leased or self.sessions][:1]
        if len(self.sessions) > 1:
            words.append(f"{len(self.sessions) - 1} more sessions")
        if self.consumers:
            words.append(f"{self.consumers} consumer{'s' * (self.consumers > 1)}")
        return ", ".join(words)

    def plain(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "queue": self.queue,
            "ready": self.ready,
            "unacked": self.unacked,
            "delayed": self.delayed,
            "oldest_age_ms": self.oldest_age_ms,
            "in_per_s": self.in_per_s,
            "out_per_s": self.out_per_s,
            "consumers": self.consumers,
            "sessions": [
                {
                    "session": each.session,
                    "live": each.live,
                    "leased": each.leased,
                    "lease_age_ms": each.lease_age_ms,
                    "query_id": each.query_id,
                    "batch_id": each.batch_id,
                    "attaches": each.attaches,
                    "host": each.holder.host,
                    "pid": each.holder.pid,
                    "application": each.holder.application,
                }
                for each in self.sessions
            ],
        }


def rows(now: Look, before: Look | None = None) -> list[QueueRow]:
    """Rows of all queues, the one with the oldest message first, with rates since `before`."""
    earlier = {queue.queue_id: queue for queue in before.queues} if before is not None else {}
    seconds = now.at_s - before.at_s if before is not None else 0.0
    readers = _by_queue(now.sessions)
    found = []
    for queue in now.queues:
        past = earlier.get(queue.queue_id)
        known = past is not None and seconds > 0
        found.append(
            QueueRow(
                queue.queue,
                queue.ready,
                queue.unacked,
                queue.delayed,
                queue.oldest_age_ms,
                queue.consumers,
                (queue.published - past.published) / seconds if past and known else None,
                (queue.accepted - past.accepted) / seconds if past and known else None,
                readers.get(queue.queue, ()),
            )
        )
    return sorted(found, key=lambda row: (-row.oldest_age_ms, row.queue))


def _by_queue(sessions: Iterable[SessionInfo]) -> Mapping[str, tuple[SessionInfo, ...]]:
    """The sessions of each queue, the oldest lease first, sessions without one last."""
    found: dict[str, list[SessionInfo]] = {}
    for session in sorted(sessions, key=lambda each: (not each.leased, -each.lease_age_ms)):
        for queue in session.queues:
            found.setdefault(queue, []).append(session)
    return {queue: tuple(each) for queue, each in found.items()}


def _reader(session: SessionInfo) -> str:
    """A session in a few words: its batch, and the process that reads it."""
    holder = session.holder
    where = f"{holder.application or 'a reader'} on {holder.host} ({holder.pid})"
    batch = f"batch {session.batch_id}, " if session.query_id else ""
    if not session.live:
        return f"session {session.session}: {batch}nobody connected"
    return f"session {session.session}: {batch}{where}"
