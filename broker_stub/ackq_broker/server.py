"""The broker process: recovers, serves, and shuts down so that the next start is fast.

Invariant: no request is served before recovery is complete and on disk.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor import FileDescriptor
from grpc import aio
from grpc_health.v1 import health, health_pb2

from ackq import __version__, limits
from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2
from ackq.wire import allocator
from ackq_broker.engine.backups import Backups
from ackq_broker.engine.clock import Uptime
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.engine.garbage import GarbageCollector
from ackq_broker.engine.recovery import Recovered, recover, wait_synced
from ackq_broker.engine.timer import TickTimer
from ackq_broker.http.context import Context
from ackq_broker.journal import Failpoint
from ackq_broker.security.authorization import Authorization
from ackq_broker.security.certificates import Credentials
from ackq_broker.security.setup import SecurityOptions
from ackq_broker.service.admin import AdminService
from ackq_broker.service.blocks.compaction import Compaction
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.service import ConsumingService
from ackq_broker.service.holdings import Holdings
from ackq_broker.service.links.service import LinksService
from ackq_broker.service.publishing.service import PublishingService
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.sessions.service import SessionsService
from ackq_broker.service.transport.access import Access, HealthOfUsers, add_reflection
from ackq_broker.service.transport.first_reads import FirstReads
from ackq_broker.service.transport.listening import Address, bind, check_apart, check_free
from ackq_broker.service.transport.rpc import service_handler

if TYPE_CHECKING:
    from ackq_broker.http.server import HttpServer

_log = logging.getLogger(__name__)

# File descriptors (I6) that clients cannot take: open segments, the end of the log, a snapshot.
_RESERVED_DESCRIPTORS: Final = 256
# The limit of the process where the hard limit is infinite.
_MOST_DESCRIPTORS: Final = 1 << 20

_SLACK_BYTES: Final = limits.MIB
# The time for calls under way to end at a shutdown; streams are asked to end and need less.
_GRACE_S: Final = 5.0
_HOUSEKEEP_S: Final = 60.0
_REPORT_S: Final = 3600.0
_DEAD_LETTERS_S: Final = 60.0
_POLL_S: Final = 1.0
_RECLAIM_S: Final = 10.0
_TRIM_S: Final = 1.0
_IDLE_MS: Final = 300_000
# Unary calls allowed at a time, in addition to the streams.
_CALLS: Final = 1_000
_OPTIONS: Final = (
    # A port in use must be an error, not a broker that shares its clients with another.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    ("grpc.max_send_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    # Clients keep quiet streams open and may ping them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # A client whose host vanished ends no stream by itself: its publisher would stay open and its
    # stage would keep its reservation (K3) forever.
    ("grpc.keepalive_time_ms", limits.HEARTBEAT_MS),
    ("grpc.keepalive_timeout_ms", limits.HEARTBEAT_MS),
    # Without this one the answer to a ping is awaited for a minute, whatever the timeout above.
    ("grpc.http2.ping_timeout_ms", limits.HEARTBEAT_MS),
    # Sockets without data, and connections without calls, are closed (I6).
    ("grpc.server_handshake_timeout_ms", limits.FIRST_REQUEST_MS),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    # A stream that is not read takes 64 KiB, instead of as much as its connection could carry.
    ("grpc.http2.bdp_probe", 0),
    # No compression: 70 kB on the wire could be 70 MB in memory.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)


class Options(NamedTuple):
    """Options of a broker.

    A memory limit of 0 is half of the machine's or cgroup's memory; `http` is the address of the
    HTTP server, None without one.
    """

    data: Path
    listen: tuple[Address, ...]
    sync: bool
    failpoint: Failpoint
    memory_limit: int = 0
    http: Address | None = None
    security: SecurityOptions = SecurityOptions()
    segment_bytes: int = limits.SEGMENT_BYTES
    reserve_bytes: int = limits.DISK_RESERVE_BYTES
    backup_dir: Path | None = None


# Reloads something, such as a changed file, and returns a text for the log. Raises AckqError or
# OSError, and then keeps the previous state.
Reload = Callable[[], str]


class Ready(NamedTuple):
    """The result of a broker's start: its addresses, history, and number of recovered records.

    `reloads` are to be called when an operator asks to read files again (SIGHUP). `http` is the
    address of the HTTP server, None without one.
    """

    listening: tuple[Address, ...]
    history_id: str
    recovered: int
    seconds: float
    reloads: tuple[Reload, ...] = ()
    http: Address | None = None

    @property
    def port(self) -> int:
        """The first TCP port; 0 when the broker listens on none."""
        return next((each.port for each in self.listening if each.path is None), 0)


OnReady = Callable[[Ready], None]


async def serve(options: Options, stop: asyncio.Event, ready: OnReady) -> None:
    """Runs a broker until `stop` is set.

    Args:
        options: The broker's options, as parsed from the command line.
        stop: Set to shut the broker down.
        ready: Called once, when the broker serves.

    Raises:
        AckqError: The broker cannot start; names the cause and the remedy.
    """
    http = None
    check_apart(options.listen, options.http)
    if options.http is not None:
        options.security.check_host(options.http.host)
        http = _http_server(options.http)
    try:
        await _serve(options, stop, ready, http)
    finally:
        if http is not None:
            await http.close()


def _http_server(address: Address) -> HttpServer:
    """Creates the HTTP server with its address bound; its library is loaded only on request."""
    from ackq_broker.http.server import HttpServer  # noqa: PLC0415 - 0.2 s

    return HttpServer(address)


async def _serve(
    options: Options, stop: asyncio.Event, ready: OnReady, http: HttpServer | None
) -> None:
    users_file, credentials = options.security.users_file(), options.security.credentials()
    for listen in options.listen:
        options.security.check_host(listen.host)
        check_free(listen)
    started = time.monotonic()
    allocator.keep_freed()
    descriptors = raise_descriptor_limit()
    uptime = Uptime()
    recovered = recover(
        options.data,
        uptime=uptime,
        sync=options.sync,
        failpoint=options.failpoint,
        memory_limit=options.memory_limit,
        segment_bytes=options.segment_bytes,
        reserve_bytes=options.reserve_bytes,
    )
    engine = recovered.engine
    server = aio.server(
        options=(
            *_OPTIONS,
            (
                "grpc.max_allowed_incoming_connections",
                connection_descriptors(descriptors, len(options.listen)),
            ),
        ),
        maximum_concurrent_rpcs=limits.MAX_STREAMS + _CALLS,
    )
    authorization = Authorization(engine.core.state, users_file)
    first_reads = FirstReads(engine.in_flight.limit, uptime)
    links = LinksService(engine, Liveness(uptime))
    sessions = SessionsService(engine, Liveness(uptime), links.half_window)
    dispatcher, tick_timer = ConsumerDispatcher(engine), TickTimer(engine)
    tick_timer.schedule()
    publishing = PublishingService(engine)
    consuming = ConsumingService(engine, dispatcher, uptime)
    holdings = Holdings(engine, consuming, sessions)
    admin = AdminService(
        engine,
        dispatcher,
        "fdatasync" if options.sync else "none",
        holdings,
        Backups(engine, options.backup_dir),
        links.end,
    )
    health_servicer = await _add_services(
        server,
        engine,
        {
            admin_pb2.DESCRIPTOR: admin,
            consuming_pb2.DESCRIPTOR: consuming,
            links_pb2.DESCRIPTOR: links,
            publishing_pb2.DESCRIPTOR: publishing,
            sessions_pb2.DESCRIPTOR: sessions,
        },
        Access(authorization, first_reads),
    )
    listening = tuple(bind(each, _add_port(server, each, credentials)) for each in options.listen)
    await wait_synced(recovered)
    await server.start()
    if http is not None:
        await http.start(
            Context(engine, admin, publishing, sessions, links, authorization, credentials)
        )
    garbage = GarbageCollector(lambda: engine.core.sequence, lambda: engine.alarms.ended_streams)
    timers = [
        engine.background(_every(engine, _POLL_S, engine.alarms.poll_disk)),
        engine.background(_every(engine, limits.UPTIME_TICK_MS / 1000, uptime.tick)),
        engine.background(_every(engine, _POLL_S, sessions.give_way)),
        engine.background(_every(engine, _POLL_S, sessions.detach_absent)),
        engine.background(_poll_memory(engine, first_reads)),
        engine.background(_every(engine, _TRIM_S, engine.trim)),
        engine.background(_every(engine, _RECLAIM_S, engine.reclaim)),
        engine.background(_every(engine, _HOUSEKEEP_S, sessions.housekeep)),
        engine.background(_every(engine, _REPORT_S, sessions.report_absent)),
        engine.background(_every(engine, _DEAD_LETTERS_S, engine.report_dead_letters)),
        engine.background(Compaction(engine).run()),
        engine.background(_every(engine, _POLL_S, authorization.poll)),
        engine.background(_every(engine, _POLL_S, garbage.poll)),
    ]
    reloads = [authorization.reload] if users_file is not None else []
    if credentials is not None:
        timers.append(engine.background(_every(engine, _POLL_S, credentials.poll)))
        reloads.append(credentials.reload)
    garbage.start()
    try:
        ready(
            Ready(
                listening,
                engine.history_id,
                recovered.records,
                time.monotonic() - started,
                tuple(reloads),
                http=http.address if http is not None else None,
            )
        )
        _log_start(options.data, recovered, listening, time.monotonic() - started)
        await stop.wait()
        _log.info("stopping: streams are asked to end", extra=event("stopping"))
    finally:
        await health_servicer.enter_graceful_shutdown()
        for timer in timers:
            timer.cancel()
        await asyncio.gather(*timers, return_exceptions=True)
        garbage.stop()
        engine.stop()
        await _end_calls(server, http)
        tick_timer.stop()
        await engine.close()
        engine.report_dead_letters()
    _log.info(
        "stopped: %s",
        " ".join(f"{name}={n}" for name, n in sorted(engine.counters.items())),
        extra=event("stopped", **engine.counters),
    )


async def _end_calls(server: aio.Server, http: HttpServer | None) -> None:
    """Ends the calls under way, by HTTP too: a closed journal takes nothing that they decide."""
    await server.stop(_GRACE_S)
    if http is not None:
        await http.close()


def _log_start(
    data: Path, recovered: Recovered, listening: tuple[Address, ...], seconds: float
) -> None:
    """Logs the recovery, the start of serving, and whether publishers are blocked (M3)."""
    _log.info(
        "version %s recovered %d records of %s, history %s",
        __version__,
        recovered.records,
        data,
        recovered.engine.history_id,
        extra=event(
            "recovered",
            version=__version__,
            records=recovered.records,
            history=recovered.engine.history_id,
        ),
    )
    _log.info(
        "serving on %s after %.3f s",
        ",".join(map(str, listening)),
        seconds,
        extra=event("serving", addresses=[*map(str, listening)]),
    )
    if reason := recovered.engine.disk_alarm.reason:
        _log.warning("%s", reason, extra=event("blocked", disk=True, memory=False))


async def _add_services(
    server: aio.Server, engine: Engine, servicers: Mapping[FileDescriptor, object], access: Access
) -> Any:
    """Registers each file's service, health and reflection; returns the health servicer."""
    names = []
    for file, servicer in servicers.items():
        (service,) = file.services_by_name.values()
        names.append(service.full_name)
        server.add_generic_rpc_handlers(
            (service_handler(service, servicer, engine.wait_synced, access),)
        )
    health_servicer = HealthOfUsers(access)
    health_servicer.add_to(server)
    for name in ("", *names):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    add_reflection(server, (*names, health.SERVICE_NAME), access)
    return health_servicer


def _add_port(
    server: aio.Server, listen: Address, credentials: Credentials | None
) -> Callable[[str], int]:
    """The function that binds an address: with TLS unless it is a Unix socket or TLS is off."""
    if credentials is None or listen.path is not None:
        return server.add_insecure_port
    return partial(_add_secure_port, server, credentials.server())


def _add_secure_port(server: aio.Server, credentials: grpc.ServerCredentials, address: str) -> int:
    return server.add_secure_port(address, credentials)


async def _poll_memory(engine: Engine, first_reads: FirstReads) -> None:
    """Polls the memory of the process, more often while much is in flight."""
    poll = engine.or_fail(engine.alarms.poll_memory)
    while True:
        await asyncio.sleep(engine.in_flight.poll_s)
        poll()
        first_reads.poll(engine.in_flight.used_bytes())


async def _every(engine: Engine, seconds: float, work: Callable[[], object]) -> None:
    """Repeats a small piece of work; its errors are logged or end the broker."""
    guarded = engine.or_fail(work)
    while True:
        await asyncio.sleep(seconds)
        guarded()


def raise_descriptor_limit() -> int:
    """Raises the soft limit of file descriptors to the hard one; returns the limit (I6)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connection_descriptors(limit: int, listeners: int) -> int:
    """The descriptors that the clients of each listener may take; gRPC counts per listener."""
    return max(1, (limit - min(_RESERVED_DESCRIPTORS, limit * 3 // 4)) // max(1, listeners))
