"""The figures of queues and sessions, read in slices between other work (M2).

Invariant: no slice holds the event loop up for longer than a few milliseconds, however many queues
and sessions there are; and nothing is told that is not on disk (I1).
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

# How long the loop may be held up at once.
_SLICE_S: Final = 0.002


class QueueFigure(NamedTuple):
    """A number that every queue has.

    Attributes:
        name: Of the metric, behind `ackq_queue_`; that of a counter ends in `_total`.
        help: What it is, as a sentence.
        of: Returns it of a queue, at a broker time in microseconds.
        highest: All queues together have the highest one, not the sum.
        counted: Its name among the totals; empty for what may shrink.
    """

    name: str
    help: str
    of: Callable[[QueueInfo, int], float]
    highest: bool = False
    counted: str = ""


def _count(name: str) -> Callable[[QueueInfo, int], float]:
    """A count of a queue."""
    return lambda queue, _: getattr(queue, name)


QUEUE_FIGURES: Final = (
    QueueFigure("messages", "Messages, ready, delayed or unacked.", lambda q, _: _messages(q)),
    QueueFigure("messages_ready", "Messages that a consumer could get now.", lambda q, _: q.ready),
    QueueFigure(
        "messages_unacked",
        "Messages leased to sessions or unacked on channels.",
        lambda q, _: q.unacked,
    ),
    QueueFigure(
        "messages_delayed", "Messages put back with a delay that goes on.", lambda q, _: q.delayed
    ),
    QueueFigure("messages_staged", "Rows staged and not committed.", lambda q, _: q.staged),
    QueueFigure(
        "messages_bytes", "Payload of the messages, in bytes.", lambda q, _: q.payload_bytes
    ),
    QueueFigure(
        "oldest_age_seconds",
        "Age of the oldest message; 0 for none.",
        lambda q, now_us: age_ms(q.oldest_us, now_us) / 1000,
        highest=True,
    ),
    QueueFigure("consumers", "Consumers on channels.", lambda q, _: q.consumers),
    QueueFigure("sessions", "Sessions that read it.", lambda q, _: len(q.sessions)),
    *(
        QueueFigure(f"messages_{count}_total", text, _count(count), counted=count)
        for count, text in {
            "published": "Messages put in.",
            "delivered": "Messages leased to sessions or delivered on channels.",
            "redelivered": "Messages leased or delivered that had been before.",
            "accepted": "Messages accepted.",
            "expired": "Messages expired.",
            "dropped": "Messages dropped: dead without a dead-letter queue, over a bound, in a"
            " cycle, or lost with a damaged block.",
        }.items()
    ),
)


class QueueTotals(NamedTuple):
    """The figures of all queues together.

    Attributes:
        queues: How many there are.
        figures: By name of the metric.
        dead_letters: Messages moved to dead-letter queues since the process began, by cause.
    """

    queues: int
    figures: Mapping[str, float]
    dead_letters: Mapping[str, int]


class SessionTotals(NamedTuple):
    """The figures of all sessions together.

    Attributes:
        sessions: How many there are.
        live: Those with a live holder.
        leased: Messages that they hold.
        lease_age_s: Age of the oldest lease.
        attaches: The most readers that attached to a lease.
    """

    sessions: int = 0
    live: int = 0
    leased: int = 0
    lease_age_s: float = 0.0
    attaches: int = 0


async def queues(engine: Engine, pattern: str = "") -> list[QueueInfo]:
    """The queues whose names match a pattern, `*` and `?` as in `queuePattern`; empty: all."""
    found: list[QueueInfo] = []
    async for name in slices(views.queue_ids(engine.core.state)):
        if not pattern or fnmatchcase(name, pattern):
            with suppress(NotFoundError):  # deleted meanwhile
                found += views.list_queues(engine.core.state, name)
    await engine.wait_synced()
    return found


async def sessions(engine: Engine) -> list[SessionInfo]:
    """The sessions."""
    found: list[SessionInfo] = []
    async for name in slices(views.session_names(engine.core.state)):
        with suppress(NotFoundError):  # ended meanwhile
            found += views.list_sessions(engine.core.state, name)
    await engine.wait_synced()
    return found


async def queue_totals(engine: Engine) -> QueueTotals:
    """What all queues are together; of counts, what was counted since the process began."""
    found = await queues(engine)
    # Of one moment: a queue is in the one or in the other.
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
    """What all sessions are together; `live` says whether an incarnation has a live holder."""
    found, now_us = await sessions(engine), engine.clock.now_us()
    return SessionTotals(
        len(found),
        sum(live(each.incarnation) for each in found),
        sum(each.leased for each in found),
        max((lease_age_s(each, now_us) for each in found), default=0.0),
        max((each.attaches for each in found), default=0),
    )


def lease_age_s(session: SessionInfo, now_us: int) -> float:
    """How long a session has had its lease, in seconds; 0 when it has none."""
    return age_ms(session.leased_at_us, now_us) / 1000 if session.leased else 0.0


async def slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Items, with a pause for other work whenever a slice of time is over."""
    until_s = time.perf_counter() + _SLICE_S
    for item in items:
        yield item
        if time.perf_counter() > until_s:
            await asyncio.sleep(0)
            until_s = time.perf_counter() + _SLICE_S


def _cause(name: str) -> str:
    """The cause of a total of dead letters; empty for another total."""
    return name.removeprefix(DEAD_LETTERED) if name.startswith(DEAD_LETTERED) else ""


def _messages(queue: QueueInfo) -> int:
    return queue.ready + queue.delayed + queue.unacked
