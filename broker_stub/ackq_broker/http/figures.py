"""The figures of queues and sessions, read in slices between other work (M2).

Invariant: no slice blocks the event loop for longer than a few milliseconds, however many queues
and sessions exist; and no figure is reported before the state it was read from is on disk (I1).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeVar

from ackq.errors import NotFoundError
from ackq_broker.core import views
from ackq_broker.core.commands import QueueInfo, SessionInfo
from ackq_broker.core.state.signals import DEAD_LETTERED
from ackq_broker.engine.clock import age_ms
from ackq_broker.engine.engine import Engine

T = TypeVar("T")

# The longest that the event loop is blocked at once.
_SLICE_S: Final = 0.002


class QueueFigure(NamedTuple):
    """A number that every queue has.

    Attributes:
        name: Name of the metric after `ackq_queue_`; that of a counter ends in `_total`.
        help: Help text, a sentence.
        of: Returns the value of a queue, at a broker time in microseconds.
        highest: The value of all queues together is the highest one, not the sum.
        counted: Name of the count among the totals; empty for a value that may shrink.
    """

    name: str
    help: str
    of: Callable[[QueueInfo, int], float]
    highest: bool = False
    counted: str = ""


def _count(name: str) -> Callable[[QueueInfo, int], float]:
    """A function that returns the count `name` of a queue."""
    return lambda queue, _: getattr(queue, name)


QUEUE_FIGURES: Final = (
    QueueFigure("messages", "Messages: ready, delayed or unacked.", lambda q, _: _messages(q)),
    QueueFigure("messages_ready", "Messages that a consumer could get now.", lambda q, _: q.ready),
    QueueFigure(
        "messages_unacked",
        "Messages leased to sessions or unacked on channels.",
        lambda q, _: q.unacked,
    ),
    QueueFigure(
        "messages_delayed",
        "Messages put back with a delay that has not ended.",
        lambda q, _: q.delayed,
    ),
    QueueFigure("messages_staged", "Rows staged and not committed.", lambda q, _: q.staged),
    QueueFigure(
        "messages_bytes", "Payload of the messages, in bytes.", lambda q, _: q.payload_bytes
    ),
    QueueFigure(
        "oldest_age_seconds",
        "Age of the oldest message; 0 if there is none.",
        lambda q, now_us: age_ms(q.oldest_us, now_us) / 1000,
        highest=True,
    ),
    QueueFigure(
        "retained_bytes",
        "Payload of accepted messages that the queue retains.",
        lambda q, _: q.retained_payload_bytes,
    ),
    QueueFigure(
        "retained_age_seconds",
        "For how long the oldest retained message has been accepted; 0 for none.",
        lambda q, now_us: age_ms(q.retained_since_us, now_us) / 1000,
        highest=True,
    ),
    QueueFigure("consumers", "Consumers on channels.", lambda q, _: q.consumers),
    QueueFigure("sessions", "Sessions that read the queue.", lambda q, _: len(q.sessions)),
    *(
        QueueFigure(f"messages_{count}_total", text, _count(count), counted=count)
        for count, text in {
            "published": "Messages put into the queue.",
            "delivered": "Messages leased to sessions or delivered on channels.",
            "redelivered": "Messages leased or delivered again.",
            "accepted": "Messages accepted.",
            "expired": "Messages expired.",
            "dropped": "Messages dropped: dead-lettered without a dead-letter queue, over a "
            "bound, in a cycle of dead-letter queues, or lost with a damaged block.",
        }.items()
    ),
)


class QueueTotals(NamedTuple):
    """The figures of all queues together.

    Attributes:
        queues: Number of queues.
        figures: Values by name of the metric.
        dead_letters: Messages moved to dead-letter queues since the process began, by cause.
    """

    queues: int
    figures: Mapping[str, float]
    dead_letters: Mapping[str, int]


class SessionTotals(NamedTuple):
    """The figures of all sessions together.

    Attributes:
        sessions: Number of sessions.
        live: Number of sessions with a live holder.
        leased: Messages that all sessions hold.
        lease_age_s: Age of the oldest lease.
        attaches: The highest number of readers that attached to a lease.
        retained_bytes: Payload of the accepted batches that sessions retain (S13).
        retained_age_s: Age of the oldest retained batch.
    """

    sessions: int = 0
    live: int = 0
    leased: int = 0
    lease_age_s: float = 0.0
    attaches: int = 0
    retained_bytes: int = 0
    retained_age_s: float = 0.0


async def queues(engine: Engine, pattern: str = "") -> list[QueueInfo]:
    """The queues whose names match a pattern, `*` and `?` as in `queuePattern`; empty: all."""
    found: list[QueueInfo] = []
    pattern = pattern.replace("[", "[[]")
    async for name in slices(views.queue_ids(engine.core.state)):
        if not pattern or fnmatchcase(name, pattern):
            with suppress(NotFoundError):  # deleted meanwhile
                found += views.list_queues(engine.core.state, name)
    await engine.wait_synced()
    return found


async def sessions(engine: Engine) -> list[SessionInfo]:
    """All sessions, read in slices."""
    found: list[SessionInfo] = []
    async for name in slices(views.session_names(engine.core.state)):
        with suppress(NotFoundError):  # ended meanwhile
            found += views.list_sessions(engine.core.state, name)
    await engine.wait_synced()
    return found


async def queue_totals(engine: Engine) -> QueueTotals:
    """The figures of all queues; counts are since the process began, with deleted queues."""
    found = await queues(engine)
    # Read at one moment: a queue is either live or included in the totals of deleted queues.
    there, gone, now_us = (
        views.queue_ids(engine.core.state),
        views.departed_totals(engine.core.state),
        engine.clock.now_us(),
    )
    figures = {figure.name: float(gone[figure.counted]) for figure in QUEUE_FIGURES}
    dead = Counter({cause: n for name, n in gone.items() if (cause := _cause(name))})
    async for queue in slices(found):
        if there.get(queue.queue) != queue.queue_id:
            continue
        for figure in QUEUE_FIGURES:
            value, before = figure.of(queue, now_us), figures[figure.name]
            figures[figure.name] = max(before, value) if figure.highest else before + value
        dead.update(dict(queue.dead_letters))
    return QueueTotals(len(there), figures, dead)


async def session_totals(engine: Engine, live: Callable[[str], bool]) -> SessionTotals:
    """The figures of all sessions; `live` returns whether an incarnation has a live holder."""
    found, now_us = await sessions(engine), engine.clock.now_us()
    return SessionTotals(
        len(found),
        sum(live(each.incarnation) for each in found),
        sum(each.leased for each in found),
        max((lease_age_s(each, now_us) for each in found), default=0.0),
        max((each.attaches for each in found), default=0),
        sum(each.retained_payload_bytes for each in found),
        max((age_ms(each.retained_since_us, now_us) / 1000 for each in found), default=0.0),
    )


def lease_age_s(session: SessionInfo, now_us: int) -> float:
    """The age of a session's lease in seconds; 0 without a lease."""
    return age_ms(session.leased_at_us, now_us) / 1000 if session.leased else 0.0


async def slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yields the items, and pauses for other work whenever a time slice is over."""
    until_s = time.perf_counter() + _SLICE_S
    for item in items:
        yield item
        if time.perf_counter() > until_s:
            await asyncio.sleep(0)
            until_s = time.perf_counter() + _SLICE_S


def _cause(name: str) -> str:
    """The cause in the name of a dead-letter total; empty for another total."""
    return name.removeprefix(DEAD_LETTERED) if name.startswith(DEAD_LETTERED) else ""


def _messages(queue: QueueInfo) -> int:
    return queue.ready + queue.delayed + queue.unacked
