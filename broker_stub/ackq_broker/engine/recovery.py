"""Recovery: makes an engine that may serve from a data directory (Q7).

Invariant: recovery replays records with the same `apply` as live traffic (I2). After a failed write
or sync, or a failure of the engine that is no refusal, the process ends without another answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core import commands, records, views
from ackq_broker.core.checks import utc
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.core import Core
from ackq_broker.engine.alarms import DiskAlarm
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.engine.in_flight import InFlight
from ackq_broker.engine.process_memory import machine_bytes, used_bytes
from ackq_broker.engine.snapshot import unpack_state
from ackq_broker.journal import Failpoint, Journal
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.journal.files.directory import read_log_end, require_journal

_log = logging.getLogger(__name__)

_FAILED: Final = 70
# The clocks of different machines differ by less.
_AHEAD_US: Final = 60_000_000


class Recovered(NamedTuple):
    """An engine with the state of its journal.

    Attributes:
        engine: May serve after `wait_synced`.
        records: The number of records replayed.
        gave_up: Whether a repair had given up blocks as lost.
        lost: (queue, messages) of lost blocks, which are dropped.
        lost_stages: The number of writers' stages dropped with them.
    """

    engine: Engine
    records: int
    gave_up: bool
    lost: tuple[tuple[str, int], ...]
    lost_stages: int


def recover(
    directory: Path,
    *,
    sync: bool,
    failpoint: Failpoint,
    uptime: Callable[[], float] = time.monotonic,
    memory_limit: int = 0,
    segment_bytes: int = limits.SEGMENT_BYTES,
    reserve_bytes: int = limits.DISK_RESERVE_BYTES,
) -> Recovered:
    """Opens the journal, replays its records, and decides the start of this process.

    Must be called on the event loop that will run the engine; what it decides is not synced yet.

    Raises:
        InUseError: Another process has the data directory.
        UnsupportedError: The data directory is of a newer format.
        DamagedError: The journal cannot be read.
    """
    loop = asyncio.get_running_loop()
    engine: Engine | None = None

    def on_synced(_: int) -> None:
        assert engine is not None
        loop.call_soon_threadsafe(engine.or_fail(engine.on_synced))

    journal, recovery = Journal.open(
        directory,
        sync=sync,
        on_synced=on_synced,
        on_failure=_die,
        segment_bytes=segment_bytes,
        reserve_bytes=reserve_bytes,
        failpoint=failpoint,
    )
    core, newest_us = Core(), 0
    if recovery.snapshot is not None:
        core, newest_us = unpack_state(recovery.snapshot)
    assert core.sequence == recovery.snapshot_sequence
    replayed = 0
    for sequence, data in recovery.records:
        record = records.decode(data)
        core.apply(sequence, record)
        journal.free_blocks(core.drain_dead_blocks())
        newest_us = max(newest_us, getattr(record, "at_us", 0))
        replayed += 1
    kept = bitmaps.array(views.durable_blocks(core.state)).astype(np.uint64)
    orphans = journal.keep_blocks(kept)
    if orphans:
        _log.info(
            "dropped %d dead blocks that readers still used at the last stop",
            orphans,
            extra=event("orphans_dropped", blocks=orphans),
        )
    journal.start()
    clock = BrokerClock(newest_us)
    _warn_if_ahead(clock)
    disk_alarm = DiskAlarm(journal.disk_free_bytes, reserve_bytes)
    in_flight = InFlight(
        memory_limit or machine_bytes() // 2,
        used_bytes,
        lambda: journal.unsynced_bytes,
        uptime,
        lambda: journal.unsynced_limit,
    )
    engine = Engine(core, journal, recovery.history_id, clock, disk_alarm, in_flight, _die)
    start = commands.Start(
        recovery.history_id, recovery.history_cause, BitMap64(recovery.lost_blocks)
    )
    started: commands.Started = engine.decide(start).reply
    if recovery.cut_bytes:
        _log.warning(
            "cut a torn tail of %d bytes, a write that was never acknowledged",
            recovery.cut_bytes,
            extra=event("torn_tail", bytes=recovery.cut_bytes),
        )
    if started.vanished:
        _log.warning(
            "%d transient messages were lost with the restart",
            started.vanished,
            extra=event("transient_gone", messages=started.vanished),
        )
    for queue, messages in started.lost:
        _log.error(
            "%d messages of queue '%s' were in damaged blocks and were dropped",
            messages,
            queue,
            extra=event("messages_lost", queue=queue, messages=messages),
        )
    if started.lost_stages:
        _log.error(
            "%d stages were in damaged blocks and were dropped: run their batches again",
            started.lost_stages,
            extra=event("stages_lost", stages=started.lost_stages),
        )
    if any(refused := views.refused_by_history(core.state)):
        _log.warning(
            "the journal is history %s, because it was %s: %d publishers, %d sessions, "
            "%d writers and %d links of older histories are refused until"
            " `ackq broker accept-history`",
            recovery.history_id,
            recovery.history_cause,
            *refused,
            extra=event("history_refused", history=recovery.history_id, **refused._asdict()),
        )
    gave_up = bool(recovery.lost_blocks)
    return Recovered(engine, replayed, gave_up, started.lost, started.lost_stages)


def _warn_if_ahead(clock: BrokerClock) -> None:
    """Warns the operator if the journal's clock was ahead of the machine's clock."""
    if clock.ahead_us > _AHEAD_US:
        _log.warning(
            "the journal was written at %s, and the machine's clock is %d s behind that time: the "
            "broker's time stands still until the clock reaches it, and until then nothing "
            "expires and no delay ends. If the machine's clock is wrong now, set it right. If it "
            "was wrong then, let the readers empty the queues, and start the broker on a new data "
            "directory",
            *(utc(clock.now_us()), clock.ahead_us // 1_000_000),
        )


async def wait_synced(recovered: Recovered) -> None:
    """Returns when the decisions of a recovery are on disk."""
    engine = recovered.engine
    await engine.wait_synced()
    if recovered.gave_up:
        await engine.snapshots.forget_lost()


@asynccontextmanager
async def offline(directory: Path, segment_bytes: int | None = None) -> AsyncIterator[Recovered]:
    """The engine of a journal that no broker serves, for work that needs its state.

    Args:
        directory: Its data directory.
        segment_bytes: Size of a segment file; None: as `segment_size`.

    Raises:
        NotFoundError: The directory does not exist, or has no journal.
        InUseError, UnsupportedError, DamagedError: As `recover`.
    """
    require_journal(directory)
    size = segment_bytes or segment_size(directory)
    recovered = recover(directory, sync=True, failpoint=unarmed, segment_bytes=size)
    try:
        await wait_synced(recovered)
        yield recovered
    finally:
        await recovered.engine.close()


def segment_size(directory: Path) -> int:
    """The size of a journal's last segment in bytes: the reason why it is small still holds."""
    known = read_log_end(directory)
    return known.file_bytes if known else limits.SEGMENT_BYTES


def _die(error: BaseException) -> NoReturn:
    """Ends the process: after a failure of journal or engine no further answer may leave.

    The next start has the state of the journal: all that was answered, and nothing half done.
    """
    _log.critical(
        "the broker failed, and exits without further answers: %s: %s",
        type(error).__name__,
        error,
        exc_info=error,
        extra=event("failed"),
    )
    logging.shutdown()
    os._exit(_FAILED)
