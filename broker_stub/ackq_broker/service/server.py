"""The broker process: recovers, serves, and shuts down so that the next start is fast.

Invariant: nothing is served before recovery is complete, and after a failed write or sync the process ends without
another answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError
from ackq.v1 import admin_pb2, consuming_pb2, publishing_pb2, sessions_pb2
from ackq_broker.core import commands, records
from ackq_broker.core.core import Core
from ackq_broker.journal import Failpoint, Journal
from ackq_broker.service.admin import AdminService
from ackq_broker.service.clock import BrokerClock
from ackq_broker.service.consuming import ConsumingService
from ackq_broker.service.disk import DiskWatch
from ackq_broker.service.engine import Engine
from ackq_broker.service.liveness import Liveness
from ackq_broker.service.publishing import PublishingService
from ackq_broker.service.rpc import service_handler
from ackq_broker.service.sessions import SessionsService

_log = logging.getLogger(__name__)

_SLACK_BYTES: Final = limits.MIB
_FAILED_SYNC_EXIT: Final = 70
# How long calls under way get at a shutdown; streams are asked to end and need a fraction of it.
_GRACE_S: Final = 5.0
_HOUSEKEEP_S: Final = 60.0
_WATCH_S: Final = 1.0
_OPTIONS: Final = (
    # A port in use shall be an error, not a broker that shares its clients with another.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    ("grpc.max_send_message_length", limits.MAX_FRAME_BYTES + _SLACK_BYTES),
    # Clients keep quiet streams open and may ping them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class Options(NamedTuple):
    """How to run a broker."""

    data: Path
    host: str
    port: int
    sync: bool
    failpoint: Failpoint


class Ready(NamedTuple):
    """What a broker that serves has to say."""

    port: int
    history_id: str
    recovered: int
    seconds: float


OnReady = Callable[[Ready], None]


class Recovered(NamedTuple):
    """A broker's state from its journal."""

    engine: Engine
    records: int
    seconds: float


def recover(options: Options) -> Recovered:
    """Open the journal, fold its records, and begin this process's part of the history (Q7).

    Must be called on the event loop that will run the engine.

    Raises:
        InUseError: Another process has the data directory.
        UnsupportedError: The data directory is of a newer format.
        DamagedError: The journal cannot be read.
    """
    started = time.monotonic()
    loop = asyncio.get_running_loop()
    engine: Engine | None = None

    def on_synced(_: int) -> None:
        assert engine is not None
        loop.call_soon_threadsafe(engine.on_synced)

    journal, recovery = Journal.open(
        options.data,
        sync=options.sync,
        on_synced=on_synced,
        on_failure=_die,
        failpoint=options.failpoint,
    )
    core = Core() if recovery.snapshot is None else Core.restore(recovery.snapshot)
    assert core.sequence == recovery.snapshot_sequence
    count = 0
    for sequence, data in recovery.records:
        core.apply(sequence, records.decode(data))
        journal.free_blocks(core.drain_dead_blocks())
        count += 1
    journal.start()
    engine = Engine(
        core,
        journal,
        recovery.history_id,
        BrokerClock(),
        DiskWatch(journal.disk_free_bytes),
    )
    started_reply: commands.Started = engine.decide(commands.Start(recovery.history_id)).reply
    if recovery.cut_bytes:
        _log.warning("cut a torn tail of %d bytes that nobody was answered for", recovery.cut_bytes)
    if started_reply.vanished:
        _log.warning("%d transient messages are gone with the restart", started_reply.vanished)
    return Recovered(engine, count, time.monotonic() - started)


async def serve(options: Options, stop: asyncio.Event, ready: OnReady) -> None:
    """Run a broker until `stop` is set.

    Args:
        options: How.
        stop: Set by whoever wants it to end.
        ready: Called once, when it serves.

    Raises:
        AckqError: It cannot start; names the cause and the remedy.
    """
    _check_free(options.host, options.port)
    engine, count, seconds = recover(options)
    server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=limits.MAX_STREAMS)
    health_servicer = await _add_services(server, engine, "fdatasync" if options.sync else "none")
    port = server.add_insecure_port(f"{options.host}:{options.port}")
    await engine.settled()
    await server.start()
    timers = [
        asyncio.create_task(_every(_WATCH_S, engine.watch_disk)),
        asyncio.create_task(_every(_HOUSEKEEP_S, lambda: engine.decide(commands.Housekeep()))),
    ]
    ready(Ready(port, engine.history_id, count, seconds))
    await stop.wait()
    await health_servicer.enter_graceful_shutdown()
    for timer in timers:
        timer.cancel()
    await asyncio.gather(*timers, return_exceptions=True)
    engine.stop()
    await server.stop(_GRACE_S)
    await engine.close()
    _log.info("stopped: %s", " ".join(f"{name}={n}" for name, n in sorted(engine.counters.items())))


async def _add_services(
    server: aio.Server, engine: Engine, sync_mode: str
) -> health.aio.HealthServicer:
    """Registers the four services, health and reflection."""
    liveness = Liveness(time.monotonic)
    descriptors = {
        admin_pb2.DESCRIPTOR.services_by_name["AdminService"]: AdminService(engine, sync_mode),
        consuming_pb2.DESCRIPTOR.services_by_name["ConsumingService"]: ConsumingService(),
        publishing_pb2.DESCRIPTOR.services_by_name["PublishingService"]: PublishingService(engine),
        sessions_pb2.DESCRIPTOR.services_by_name["SessionsService"]: SessionsService(
            engine, liveness
        ),
    }
    server.add_generic_rpc_handlers(
        tuple(
            service_handler(descriptor, servicer, engine.settled)
            for descriptor, servicer in descriptors.items()
        )
    )
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = [descriptor.full_name for descriptor in descriptors]
    for name in ("", *names):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection(
        (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    return health_servicer


def _check_free(host: str, port: int) -> None:
    """Tells a port in use from what gRPC only logs."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InvalidArgumentError(
            f"The broker cannot listen on {host}:{port}: {error.strerror or error}. Stop what uses that"
            " address, or choose another with --listen.",
            listen=f"{host}:{port}",
        ) from error


async def _every(seconds: float, work: Callable[[], object]) -> None:
    """Does a small piece of work again and again; a failure is logged and the next turn comes."""
    while True:
        await asyncio.sleep(seconds)
        try:
            work()
        except AckqError as error:
            _log.error("housekeeping failed: %s", error)  # noqa: TRY400 - a refusal has no traceback


def _die(error: BaseException) -> NoReturn:
    """The journal failed: what is on disk is not known, so nobody may be answered any more."""
    _log.critical("the journal failed, the broker ends without answers: %s", error, exc_info=error)
    logging.shutdown()
    os._exit(_FAILED_SYNC_EXIT)
