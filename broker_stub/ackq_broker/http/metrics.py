"""`/metrics` and `/metrics/queues`: metrics for a monitoring system to scrape (M2).

They are read from the state on request; almost nothing is counted on the path of messages. The
names are RabbitMQ's where it has them, with `ackq` for `rabbitmq`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from ackq import __version__, limits
from ackq.v1 import admin_pb2, links_pb2
from ackq_broker.core import views
from ackq_broker.core.commands import QueueInfo, SessionInfo
from ackq_broker.engine.clock import age_ms
from ackq_broker.http import figures, link_metrics
from ackq_broker.http.context import Context
from ackq_broker.http.figures import QUEUE_FIGURES, QueueTotals, SessionTotals
from ackq_broker.journal.write.group_commit import BOUNDS_S

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_LIST_QUEUES: Final = "ackq.v1.AdminService/ListQueues"
_QUEUE: Final = "ackq_queue_"
_DEAD_LETTERS: Final = "ackq_queue_messages_dead_lettered"
_DEAD_LETTERS_HELP: Final = "Messages moved to a dead-letter queue, since the broker started."
_SESSION: Final = "ackq_session_"
# Help of the counters of answers to publishers and of staged rows, by name in `Engine.counters`.
_COUNTED: Final = {
    "confirmed": "Messages confirmed to publishers.",
    "nacked": "Messages nacked.",
    "returned": "Messages returned as unroutable.",
    "staged": "Rows staged by writers.",
}
_WRITE_BYTES: Final = 64 * limits.KIB
_WRITE_S: Final = 60.0


def add_routes(app: web.Application, context: Context) -> None:
    """Adds the routes of both paths."""
    scraping = asyncio.Lock()  # several at once would not be faster, and take more memory

    async def metrics(request: web.Request) -> web.Response:
        context.check(request, _LIST_QUEUES, admin_pb2.ListQueuesRequest())
        async with scraping:
            scrape = Scrape(
                context,
                await figures.queue_totals(context.engine),
                await figures.session_totals(context.engine, context.sessions.live),
                await _links(context),
                await context.engine.run(lambda: _files(context)),
            )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(scrape)
        ProcessCollector(registry=registry)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    async def queues(request: web.Request) -> web.StreamResponse:
        context.check(request, _LIST_QUEUES, admin_pb2.ListQueuesRequest())
        pattern = request.query.get("queue", "")
        response = web.StreamResponse(headers={"Content-Type": _TEXT})
        every = not pattern
        async with scraping:
            found = await figures.queues(context.engine, pattern)
            known = await figures.sessions(context.engine)
            finished = context.sessions.finished
            held = [each async for each in figures.slices(known) if not finished(each)]
            links = await _links(context)
        # A slow reader delays no other scrape, and is not waited for without end.
        async with asyncio.timeout(_WRITE_S):
            await response.prepare(request)
            chunk = bytearray()
            async for line in figures.slices(_lines(context, found, held, links, every=every)):
                chunk += line
                if len(chunk) > _WRITE_BYTES:
                    await response.write(chunk)
                    chunk = bytearray()
            await response.write(chunk)
            await response.write_eof()
        return response

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/metrics/queues", queues)


async def _links(context: Context) -> Sequence[links_pb2.LinkInfo]:
    return (await context.links.list_links(links_pb2.ListLinksRequest())).links


class _DiskBytes(NamedTuple):
    """Sizes in bytes of the data directory and its disk, which take a moment to read."""

    journal: int
    live: int
    disk_free: int


def _files(context: Context) -> _DiskBytes:
    journal = context.engine.journal
    return _DiskBytes(journal.file_bytes(), journal.live_bytes(), journal.disk_free_bytes())


class Scrape(Collector):
    """The metrics of one scrape.

    Args:
        context: The broker's parts.
        queues: The totals of all queues.
        sessions: The totals of all sessions.
        links: All links.
        files: The sizes of the data directory.
    """

    def __init__(
        self,
        context: Context,
        queues: QueueTotals,
        sessions: SessionTotals,
        links: Sequence[links_pb2.LinkInfo],
        files: _DiskBytes,
    ) -> None:
        self._context = context
        self._queues = queues
        self._sessions = sessions
        self._links = links
        self._files = files

    def collect(self) -> Iterator[Metric]:
        """Yields all metric families."""
        yield InfoMetricFamily(
            "ackq_build",
            "The broker's version and the history of its journal.",
            {"version": __version__, "history": self._context.engine.history_id},
        )
        yield from self._of_queues()
        yield from self._of_publishers()
        yield from self._of_sessions()
        yield from link_metrics.together(self._links)
        yield from self._of_journal()
        yield from self._of_resources()
        credentials = self._context.credentials
        if credentials is not None:
            yield _gauge(
                "ackq_certificate_expiration_timestamp_seconds",
                "Expiry of the TLS certificate, as a Unix time.",
                credentials.not_after.timestamp(),
            )

    def _of_queues(self) -> Iterator[Metric]:
        yield _gauge("ackq_queues", "Queues.", self._queues.queues)
        for figure in QUEUE_FIGURES:
            make = CounterMetricFamily if figure.counted else GaugeMetricFamily
            yield make(_QUEUE + figure.name, figure.help, self._queues.figures[figure.name])
        dead = CounterMetricFamily(_DEAD_LETTERS, _DEAD_LETTERS_HELP, labels=["cause"])
        for cause in ("rejected", "delivery_limit", "expired"):
            dead.add_metric([cause], self._queues.dead_letters.get(cause, 0))
        yield dead

    def _of_publishers(self) -> Iterator[Metric]:
        engine = self._context.engine
        for name, text in _COUNTED.items():
            yield CounterMetricFamily(f"ackq_messages_{name}", text, engine.counters[name])
        yield CounterMetricFamily(
            "ackq_transactions_committed",
            "Transactions committed.",
            engine.counters["transactions"],
        )
        open_streams = engine.alarms.streams()
        streams = GaugeMetricFamily(
            "ackq_streams", "Long-lived streams of clients.", labels=["kind"]
        )
        for kind in ("publish", "consume", "stage", "hold", "link", "report"):
            streams.add_metric([kind], open_streams[kind])
        yield streams
        yield _gauge(
            "ackq_publishers_blocked",
            "Publishers that are blocked.",
            self._context.publishing.blocked(),
        )
        alarms = GaugeMetricFamily(
            "ackq_alarm",
            "1 while publishers are blocked for this reason.",
            labels=["reason"],
        )
        alarms.add_metric(["disk"], bool(engine.disk_alarm.reason))
        alarms.add_metric(["memory"], bool(engine.in_flight.reason))
        unsynced = engine.journal.unsynced_bytes > engine.journal.unsynced_limit
        alarms.add_metric(["unsynced"], unsynced)
        yield alarms

    def _of_sessions(self) -> Iterator[Metric]:
        sessions = self._sessions
        yield _gauge("ackq_sessions", "Sessions.", sessions.sessions)
        yield _gauge("ackq_sessions_live", "Sessions with a live reader.", sessions.live)
        for name, value in (
            ("messages_leased", sessions.leased),
            ("lease_age_seconds", sessions.lease_age_s),
            ("attaches", sessions.attaches),
            ("retained_bytes", sessions.retained_bytes),
            ("retained_age_seconds", sessions.retained_age_s),
        ):
            yield _gauge(_SESSION + name, _SESSION_HELP[name], value)

    def _of_journal(self) -> Iterator[Metric]:
        journal = self._context.engine.journal
        times = journal.sync_times
        counts = tuple(times.counts)
        below = [sum(counts[: at + 1]) for at in range(len(counts))]
        bounds = (*map(str, BOUNDS_S), "+Inf")
        yield HistogramMetricFamily(
            "ackq_journal_sync_seconds",
            "Duration of the journal's syncs.",
            buckets=list(zip(bounds, below, strict=True)),
            sum_value=times.total_s,
        )
        yield CounterMetricFamily(
            "ackq_journal_written_bytes", "Bytes written to the journal.", journal.written_bytes
        )
        yield _gauge(
            "ackq_journal_unsynced_bytes",
            "Bytes in memory that wait for the disk.",
            journal.unsynced_bytes,
        )
        yield _gauge(
            "ackq_journal_bytes", "Disk space of the data directory, in bytes.", self._files.journal
        )
        yield _gauge(
            "ackq_journal_live_bytes",
            "Bytes of live blocks in the data directory.",
            self._files.live,
        )
        yield _gauge(
            "ackq_disk_free_bytes",
            "Free bytes on the disk of the data directory.",
            self._files.disk_free,
        )
        yield _gauge(
            "ackq_disk_reserve_bytes",
            "Free bytes below which publishers are blocked.",
            self._context.engine.disk_alarm.reserve_bytes,
        )

    def _of_resources(self) -> Iterator[Metric]:
        engine = self._context.engine
        yield _gauge(
            "ackq_memory_used_bytes", "Memory that the process uses.", engine.in_flight.used_bytes()
        )
        yield _gauge(
            "ackq_memory_limit_bytes", "Memory that the process may use.", engine.in_flight.limit
        )
        yield _gauge(
            "ackq_memory_in_flight_bytes",
            "Bytes received and not handled, or read and not sent.",
            engine.in_flight.held,
        )
        yield _gauge(
            "ackq_history_refused",
            "Publishers, sessions, writers and links of older histories, which are refused.",
            sum(views.refused_by_history(engine.core.state)),
        )


_SESSION_HELP: Final = {
    "messages_leased": "Messages leased to the session and not accepted.",
    "lease_age_seconds": "Age of the session's lease; 0 without a lease.",
    "attaches": "Readers that attached to the session's lease.",
    "retained_bytes": "Payload of the accepted batches that can be read again.",
    "retained_age_seconds": "Age of the oldest accepted batch that can be read again; 0 for none.",
    "live": "1 while the session has a live reader.",
    "batch": "Micro-batch that the session's reader reads; -1 if it is not known.",
}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _lines(
    context: Context,
    queues: Iterable[QueueInfo],
    sessions: Iterable[SessionInfo],
    links: Iterable[links_pb2.LinkInfo],
    *,
    every: bool,
) -> Iterator[bytes]:
    """The metric lines of queues, of the sessions that read them and of the links that fill them.

    One family after the other. prometheus-client writes the head of each family; this function
    writes its lines: prometheus-client takes 4 us for one line, which is half a second for 10,000
    queues, and this function a twentieth of that.
    """
    now_us = context.engine.clock.now_us()
    labelled = [(f"{{queue={_quoted(queue.queue)}}}", queue) for queue in queues]
    for figure in QUEUE_FIGURES:
        name = _QUEUE + figure.name
        make = CounterMetricFamily if figure.counted else GaugeMetricFamily
        yield _head(make(name, figure.help))
        of = figure.of
        for label, queue in labelled:
            yield f"{name}{label} {of(queue, now_us)}\n".encode()
    yield _head(CounterMetricFamily(_DEAD_LETTERS, _DEAD_LETTERS_HELP))
    for label, queue in labelled:
        for cause, count in queue.dead_letters:
            yield f'{_DEAD_LETTERS}_total{label[:-1]},cause="{cause}"}} {count}\n'.encode()
    names = {queue.queue for _, queue in labelled}
    shown = [each for each in sessions if every or not names.isdisjoint(each.queues)]
    yield from _session_lines(context, shown, names, now_us)
    for family in link_metrics.each(each for each in links if every or each.queue in names):
        yield _head(family)


def _session_lines(
    context: Context, sessions: list[SessionInfo], queues: set[str], now_us: int
) -> Iterator[bytes]:
    """The metric lines of sessions: numbers by session, and an info line for each of its queues."""
    values: Mapping[str, Callable[[SessionInfo], float]] = {
        "messages_leased": lambda each: each.leased,
        "lease_age_seconds": lambda each: figures.lease_age_s(each, now_us),
        "attaches": lambda each: each.attaches,
        "retained_bytes": lambda each: each.retained_payload_bytes,
        "retained_age_seconds": lambda each: age_ms(each.retained_since_us, now_us) / 1000,
        "live": lambda each: int(context.sessions.live(each.incarnation)),
        "batch": lambda each: each.fetch.batch_id if each.fetch.query_id else -1,
    }
    for name, of in values.items():
        yield _head(GaugeMetricFamily(_SESSION + name, _SESSION_HELP[name]))
        for session in sessions:
            label = f"{{session={_quoted(session.session)}}}"
            yield f"{_SESSION}{name}{label} {of(session)}\n".encode()
    yield _head(InfoMetricFamily("ackq_session", "Queues of a session, and its reader."))
    for session in sessions:
        holder = session.holder
        labels = {
            "session": session.session,
            "query": session.fetch.query_id,
            "host": holder.host if holder is not None else "",
            "application": holder.application if holder is not None else "",
        }
        said = ",".join(f"{name}={_quoted(value)}" for name, value in labels.items())
        for queue in session.queues:
            if queue in queues:
                yield f"ackq_session_info{{queue={_quoted(queue)},{said}}} 1\n".encode()


def _head(family: Metric) -> bytes:
    """The head of a metric family: the lines before its samples."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Head(family))
    return generate_latest(registry)


class _Head(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _quoted(value: str) -> str:
    """A label's value, escaped and quoted for the text format."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
