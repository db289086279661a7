"""The broker process: recovers, serves, and shuts down so that the next start is fast.

Invariant: nothing is served before recovery is complete and on disk.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FileDescriptor
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.v1 import admin_pb2, consuming_pb2, publishing_pb2, sessions_pb2
from ackq.wire import allocator
from ackq_broker.journal import Failpoint
from ackq_broker.service.admin import AdminService
from ackq_broker.service.blocks.compaction import Compaction
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.service import ConsumingService
from ackq_broker.service.engine.engine import Engine
from ackq_broker.service.engine.recovery import recover, wait_synced
from ackq_broker.service.engine.timer import TickTimer
from ackq_broker.service.publishing.service import PublishingService
from ackq_broker.service.sessions.liveness import Liveness, Uptime
from ackq_broker.service.sessions.service import SessionsService
from ackq_broker.service.transport.descriptors import for_connections, raise_limit
from ackq_broker.service.transport.rpc import OpenStreams, service_handler

_log = logging.getLogger(__name__)

_SLACK_BYTES: Final = limits.MIB
# The grace of calls under way at a shutdown; streams are asked to end and need a fraction of it.
_GRACE_S: Final = 5.0
_HOUSEKEEP_S: Final = 60.0
_REPORT_S: Final = 3600.0
_POLL_S: Final = 1.0
_RECLAIM_S: Final = 10.0
_TRIM_S: Final = 1.0
_IDLE_MS: Final = 300_000
# For calls with one answer, beside the streams.
_CALLS: Final = 1_000
_OPTIONS: Final = (
    # A port in use shall be an error, not a broker that shares its clients with another.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    ("grpc.max_send_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    # Clients keep quiet streams open and may ping them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # A client whose host vanished ends no stream by itself: its publisher would stay open and its
    # stage would keep its reservation (K3) for ever.
    ("grpc.keepalive_time_ms", limits.HEARTBEAT_MS),
    ("grpc.keepalive_timeout_ms", limits.HEARTBEAT_MS),
    # Without this one the answer to a ping is awaited for a minute, whatever the timeout above.
    ("grpc.http2.ping_timeout_ms", limits.HEARTBEAT_MS),
    # Sockets on which nothing comes, and connections on which no call is made, go (I6).
    ("grpc.server_handshake_timeout_ms", limits.FIRST_REQUEST_MS),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    # A stream that is not read from takes 64 KiB, and not as much as its connection could carry.
    ("grpc.http2.bdp_probe", 0),
    # 70 kB on the wire could be 70 MB in memory.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)


class Options(NamedTuple):
    """How to run a broker; a memory limit of 0 is half of what there is."""

    data: Path
    host: str
    port: int
    sync: bool
    failpoint: Failpoint
    memory_limit: int = 0


class Ready(NamedTuple):
    """The start of a broker that serves: its port, history, and what it recovered."""

    port: int
    history_id: str
    recovered: int
    seconds: float


OnReady = Callable[[Ready], None]


async def serve(options: Options, stop: asyncio.Event, ready: OnReady) -> None:
    """Runs a broker until `stop` is set.

    Args:
        options: As parsed from the command line.
        stop: Set to shut the broker down.
        ready: Called once, when it serves.

    Raises:
        AckqError: It cannot start; names the cause and the remedy.
    """
    _check_free(options.host, options.port)
    started = time.monotonic()
    allocator.keep_freed()
    descriptors = raise_limit()
    recovered = recover(
        options.data,
        sync=options.sync,
        failpoint=options.failpoint,
        memory_limit=options.memory_limit,
    )
    engine = recovered.engine
    connections = ("grpc.max_allowed_incoming_connections", for_connections(descriptors))
    server = aio.server(
        options=(*_OPTIONS, connections), maximum_concurrent_rpcs=limits.MAX_STREAMS + _CALLS
    )
    uptime = Uptime()
    sessions = SessionsService(engine, Liveness(uptime))
    dispatcher, tick_timer = ConsumerDispatcher(engine), TickTimer(engine)
    tick_timer.schedule()
    health_servicer = await _add_services(
        server,
        engine,
        {
            admin_pb2.DESCRIPTOR: AdminService(
                engine, dispatcher, "fdatasync" if options.sync else "none"
            ),
            consuming_pb2.DESCRIPTOR: ConsumingService(engine, dispatcher),
            publishing_pb2.DESCRIPTOR: PublishingService(engine),
            sessions_pb2.DESCRIPTOR: sessions,
        },
    )
    port = server.add_insecure_port(f"{options.host}:{options.port}")
    await wait_synced(recovered)
    await server.start()
    timers = [
        asyncio.create_task(_every(_POLL_S, engine.or_fail(engine.poll_disk))),
        asyncio.create_task(_every(_POLL_S, engine.or_fail(uptime))),
        asyncio.create_task(_every(_POLL_S, engine.or_fail(sessions.detach_absent))),
        asyncio.create_task(_poll_memory(engine)),
        asyncio.create_task(_every(_TRIM_S, engine.or_fail(engine.trim_memory))),
        asyncio.create_task(_every(_RECLAIM_S, engine.or_fail(engine.reclaim))),
        asyncio.create_task(_every(_HOUSEKEEP_S, engine.or_fail(sessions.housekeep))),
        asyncio.create_task(_every(_REPORT_S, engine.or_fail(sessions.report_absent))),
        asyncio.create_task(Compaction(engine).run()),
    ]
    if engine.disk_alarm.reason:
        _log.warning("%s", engine.disk_alarm.reason)
    try:
        ready(Ready(port, engine.history_id, recovered.records, time.monotonic() - started))
        await stop.wait()
    finally:
        await health_servicer.enter_graceful_shutdown()
        for timer in timers:
            timer.cancel()
        await asyncio.gather(*timers, return_exceptions=True)
        engine.stop()
        await server.stop(_GRACE_S)
        tick_timer.stop()
        await engine.close()
    _log.info("stopped: %s", " ".join(f"{name}={n}" for name, n in sorted(engine.counters.items())))


async def _add_services(
    server: aio.Server, engine: Engine, servicers: Mapping[FileDescriptor, object]
) -> Any:
    """Registers each file's service, health and reflection; returns the health servicer."""
    names = []
    streams = OpenStreams()
    for file, servicer in servicers.items():
        (service,) = file.services_by_name.values()
        names.append(service.full_name)
        server.add_generic_rpc_handlers(
            (service_handler(service, servicer, engine.wait_synced, streams),)
        )
    health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined] # the stubs lack it
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    for name in ("", *names):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection(
        (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    return health_servicer


def _check_free(host: str, port: int) -> None:
    """Refuses an address in use, which gRPC would only log; raises InvalidArgumentError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InvalidArgumentError(
            f"The broker cannot listen on {host}:{port}: {error.strerror or error}. Stop what uses"
            " that address, or choose another with --listen.",
            listen=f"{host}:{port}",
        ) from error


async def _poll_memory(engine: Engine) -> None:
    """Polls the memory of the process, the sooner the more is in flight."""
    poll = engine.or_fail(engine.poll_memory)
    while True:
        await asyncio.sleep(engine.in_flight.poll_s)
        poll()


async def _every(seconds: float, work: Callable[[], object]) -> None:
    """Repeats a small piece of work."""
    while True:
        await asyncio.sleep(seconds)
        work()
