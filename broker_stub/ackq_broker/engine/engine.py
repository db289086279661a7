"""The engine: decides with the core, applies, journals, and holds answers behind the sync gate.

Invariant I1: `call` and `query` return only once the journal has synced what their answer depends
on; refusals wait in `transport.rpc`, by `wait_synced`. The engine runs on one event loop, so the
core and the order of the journal need no locks. A failure that is no refusal may leave core and
journal inconsistent: it ends the process, without another answer (I2).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from ackq import limits
from ackq.errors import AckqError, AlreadyHeldError, ClosedError
from ackq_broker.core import commands, records
from ackq_broker.core.core import Core
from ackq_broker.engine import process_memory
from ackq_broker.engine.alarms import Alarms, DiskAlarm
from ackq_broker.engine.block_cache import BlockCache
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.engine.events import dead_letters_line, event
from ackq_broker.engine.in_flight import InFlight
from ackq_broker.engine.snapshot import Pacing, Snapshots
from ackq_broker.engine.sync_gate import SyncGate
from ackq_broker.journal import Bulk, Entry, Journal

_log = logging.getLogger(__name__)

T = TypeVar("T")

_WORKERS: Final = 4
# Transient blocks are written without a sync, so no sync can signal their end.
_TRANSIENT_POLL_S: Final = 0.01
# A slice takes a millisecond or two; the slices suffice for a block whose keys take the most steps.
_SLICE_STEPS: Final = 2_000
_MANY_ROUTES: Final = 200
# To capture a queue for a snapshot takes some 40 us.
_CAPTURED_QUEUES: Final = 50
_MATCH_SLICES: Final = limits.FRAME_TARGET_ROWS * limits.MAX_TOPIC_STEPS // _SLICE_STEPS
# The commands that a full disk refuses; all others drain it and are served from the reserve.
_FILLS_THE_DISK: Final = (
    commands.OpenPublisher,
    commands.Publish,
    commands.PublishTogether,
    commands.TransactionBlock,
    commands.OpenStage,
    commands.StageBlock,
    commands.CommitBatch,
    commands.StageOutcomes,
    commands.StoreLinked,
    commands.DeclareQueue,
    commands.DeclareExchange,
    commands.Bind,
)


# Commands that begin work that a restart would interrupt (O6).
_BEGINS: Final = (commands.OpenStage, commands.Advance)


class Ticket(NamedTuple):
    """A decided answer; it may leave once the journal has synced `sequence`."""

    reply: Any
    sequence: int


class Engine:
    """One broker's core and journal: every command and query goes through here.

    Args:
        core: The state machine, recovered.
        journal: Started; after each sync its owner calls `on_synced` on this engine's loop.
        history_id: Identity of the journal's history (Q8).
        clock: The broker's clock.
        disk_alarm: The alarm that is on while the disk is at its reserve.
        in_flight: Bytes that streams have sent and that are not handled, and the memory alarm.
        on_failure: Ends the process, without another answer.
    """

    def __init__(
        self,
        core: Core,
        journal: Journal,
        history_id: str,
        clock: BrokerClock,
        disk_alarm: DiskAlarm,
        in_flight: InFlight,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.core = core
        self.journal = journal
        self.history_id = history_id
        self.clock = clock
        self.disk_alarm = disk_alarm
        self.in_flight = in_flight
        self.sync_gate = SyncGate(journal.synced)
        self.block_cache = BlockCache(journal.read_block)
        self.counters = Counter[str]()
        self._closed = False
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        # Identifies this start of the broker: a client that waits for a holder counts from it (S3).
        self._started_us = clock.now_us()
        # Called after every decision that has records; they read the core in a later turn.
        self.on_change: list[Callable[[], object]] = []
        # Publishers with messages of a transaction that are only in memory (P13).
        self.buffering: set[bytes] = set()
        self.alarms = Alarms(disk_alarm, in_flight)
        self._pacing = Pacing(lambda: asyncio.get_running_loop().time())
        self.snapshots = Snapshots(
            core, journal, clock, self.or_fail, self.run, self._pacing.pause_s
        )
        self._matching = asyncio.Lock()
        self._put_off: list[Callable[[], object]] = []
        self._pool = ThreadPoolExecutor(_WORKERS, "ackq-worker")
        # Ordered by arrival, so that a simulated run can be replayed.
        self._changed: dict[asyncio.Future[None], None] = {}

    # --- commands and queries ---

    def decide(self, command: commands.Command, block: Bulk = (), *, lone: bool = False) -> Ticket:
        """Decides, applies and appends one command; its answer waits for the ticket's sequence.

        Args:
            command: A command of any kind.
            block: The block of a `Publish`, `TransactionBlock`, `StageBlock` or `StoreLinked`, as
                buffers to be joined; dropped when the core places none of its rows.
            lone: Its caller waits for the answer, and no other does: it may be synced at once,
                unless the answer waits for no sync (P5).

        Raises:
            AckqError: The core refuses, or the disk is full and the command would add to it;
                nothing was changed.
            ClosedError: The engine has failed.
        """
        if self.failure is not None:
            raise ClosedError(f"The broker failed, and handles no more requests: {self.failure}")
        if self._put_off:
            self.catch_up()
        self._pacing.decisions += 1
        decision = self._decision(command)
        if decision.records:
            try:
                self._write(decision.records, block, lone=lone and decision.after is None)
            except BaseException as error:
                # Even a refusal is too late: the records are applied in part, or not appended.
                self.fail(error)
                raise
        sequence = self.core.sequence if decision.after is None else decision.after
        return Ticket(decision.reply, sequence)

    def put_off(self, decide: Callable[[], object]) -> None:
        """Calls `decide` after this turn of the event loop, but before anything else is decided."""
        if not self._put_off:
            asyncio.get_running_loop().call_soon(self.or_fail(self.catch_up))
        self._put_off.append(decide)

    def catch_up(self) -> None:
        """Decides what was put off."""
        put_off, self._put_off = self._put_off, []
        for decide in put_off:
            decide()

    def _decision(self, command: commands.Command) -> commands.Decision:
        """The core's decision, with nothing changed yet; raises a refusal of core or disk."""
        if self.alarms.draining and _begins(command):
            self.alarms.check_taking()
        try:
            decision = self.core.decide(command, self.clock.now_us())
            # A repeated command has no records, and is answered on a full disk, too: a second
            # declare, or a publish sent again because its confirm was lost (P10).
            if decision.records and _fills_the_disk(command):
                self.disk_alarm.check()
        except AlreadyHeldError as held:
            held.fields["broker_started_us"] = str(self._started_us)
            raise
        except AckqError:
            raise
        except BaseException as error:
            self.fail(error)
            raise
        return decision

    def end(self, command: commands.ClosePublisherStream | commands.DropStage) -> None:
        """Decides the end of a stream; without effect once the engine is closed.

        A stream that did not end within the grace of a stop is cancelled, and may call this when
        the journal is closed. The next start ends everything that has no stream.
        """
        if not self._closed:
            self.decide(command)

    async def call(self, command: commands.Command, block: Bulk = ()) -> Any:
        """Calls `decide`, and waits until the reply may leave (I1); raises a refusal at once."""
        reply, sequence = self.decide(command, block)
        await self.sync_gate.wait(sequence)
        return reply

    async def query(self, read: Callable[[], T]) -> T:
        """Calls `read` now; returns its result once everything it could read is on disk (I1)."""
        found = read()
        await self.wait_synced()
        return found

    async def wait_synced(self) -> None:
        """Returns when everything decided so far is on disk; an error is sent only then (I1)."""
        await self.sync_gate.wait(self.core.sequence)

    def _write(self, decided: tuple[records.Record, ...], block: Bulk, *, lone: bool) -> None:
        """Applies records and appends them to the journal as one unit."""
        entries = []
        for record in decided:
            self.core.apply(self.core.sequence + 1, record)
            block_id, durable = _block_of(record)
            if block_id and not durable:
                self.journal.store_transient(block_id, block)
            kept = (block_id, block) if block_id and durable else (None, ())
            entries.append(Entry(records.encode(record), *kept))
            if block_id:
                self.block_cache.keep_new(block_id, block)
        last = self.journal.append(entries, lone=lone)
        assert last == self.core.sequence, (last, self.core.sequence)
        self.free_dead_blocks()
        self._wake_changed()
        for notify in self.on_change:
            notify()
        if self.journal.snapshot_due:
            self.snapshots.write()
        if lone:
            self.on_synced()

    def report_dead_letters(self) -> None:
        """Logs the messages that became dead letters since the last call, if any did."""
        if counts := self.core.drain_dead_letters():
            causes = Counter[str]()
            for (_, cause), count in counts.items():
                causes[cause] += count
            _log.warning("%s", dead_letters_line(counts), extra=event("dead_letters", **causes))

    def free_dead_blocks(self) -> None:
        """Frees the blocks that are no longer referred to, and that no reader has pinned."""
        dead = self.core.drain_dead_blocks()
        if dead:
            # The journal keeps order: no block is freed before the records that end it are synced.
            self.journal.free_blocks(dead)

    async def ready(self, exchange: str, routes: commands.Routes) -> None:
        """Matches topics and captures queues ahead of a block's decision, in slices (I6).

        Queues are captured for a snapshot that is being encoded. The decision does the rest.
        """
        if len(routes.keys) > _MANY_ROUTES:  # its decision takes long, too
            await asyncio.sleep(self._pacing.pause_s())
            self._pacing.long += 1
        await self._match(exchange, routes)
        queue_ids = self.core.uncaptured(exchange, routes)
        for start in range(0, len(queue_ids), _CAPTURED_QUEUES):
            self.core.capture(queue_ids[start : start + _CAPTURED_QUEUES])
            await asyncio.sleep(self._pacing.pause_s())

    async def _match(self, exchange: str, routes: commands.Routes) -> None:
        """Matches the topics of a block ahead of its decision.

        All streams together match one slice in each turn of the event loop, apart from the first
        slice of a block. Topics that are not matched by then are matched in the decision.
        """
        start = matched = 0
        for _ in range(_MATCH_SLICES):
            matched = self.core.match(exchange, routes, matched, _SLICE_STEPS)
            if matched == len(routes.keys):
                if not start:
                    return
                start = matched = 0  # again, in one go: bindings may have changed meanwhile
                continue
            start = matched
            async with self._matching:
                await asyncio.sleep(0)

    # --- waiting for changes and room ---

    async def wait_changed(self, timeout_s: float) -> None:
        """Returns when any record was applied, when the broker stops, or after `timeout_s`."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed[change] = None
        try:
            await asyncio.wait((change,), timeout=timeout_s)
        finally:
            self._changed.pop(change, None)

    async def wait_writable(self) -> None:
        """Backpressure: returns when the unsynced bytes are below the limit (P14)."""
        while self.journal.unsynced_bytes > self.journal.unsynced_limit:
            if self.sync_gate.synced < self.core.sequence:
                await self.wait_synced()
            else:
                await asyncio.sleep(_TRANSIENT_POLL_S)

    def _wake_changed(self) -> None:
        changed, self._changed = self._changed, {}
        for change in changed:
            if not change.done():
                change.set_result(None)

    def trim(self) -> None:
        """Returns spare segments and freed memory to the system, in the background."""
        self._pool.submit(self.journal.trim_spares)
        if self.in_flight.reason:
            self._pool.submit(process_memory.trim)

    def reclaim(self) -> None:
        """Writes a snapshot for any garbage while the disk is at its reserve (P8).

        Only a snapshot frees segments, and draining may leave less garbage than otherwise triggers
        a snapshot.
        """
        if self.disk_alarm.reason and self.journal.has_garbage:
            self.snapshots.write()

    # --- reading blocks ---

    async def run(self, work: Callable[[], T]) -> T:
        """Runs blocking or heavy work in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # --- lifecycle ---

    def on_synced(self) -> None:
        """Releases the answers that waited for sequences that the journal has synced."""
        if self.failure is None:
            self.sync_gate.advance(self.journal.synced)

    def fail(self, error: BaseException) -> None:
        """Ends the broker, without another answer, after an error that is no refusal (I2)."""
        if self.failure is None:
            self.failure = error
            self.sync_gate.shut()
            self.snapshots.abandon()
            self._on_failure(error)

    def or_fail(self, work: Callable[[], object]) -> Callable[[], None]:
        """Wraps work for a timer or callback of the event loop, where nobody handles exceptions.

        A refusal or an error of the disk is logged and leaves the state as it was; any other
        exception ends the broker.
        """

        def run() -> None:
            try:
                work()
            except (AckqError, OSError) as error:
                _log.error("work in the background failed: %s", error)
            except BaseException as error:
                self.fail(error)
                raise

        return run

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that nobody awaits; an exception of it ends the broker."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def stop(self) -> None:
        """Asks long-lived streams and waiting calls to end."""
        self.alarms.stop()
        self._wake_changed()

    async def close(self) -> None:
        """Writes a last snapshot and closes the journal; from then on nothing may be decided."""
        self.catch_up()
        self._closed = True
        self.journal.stop_waiting()
        await asyncio.wait((asyncio.wrap_future(self.snapshots.write()),))
        await self.run(self.journal.close)
        self._pool.shutdown()


def _begins(command: commands.Command) -> bool:
    """Whether a command begins new work; a publisher that comes back finishes earlier work."""
    if isinstance(command, commands.OpenPublisher):
        return not command.resume
    return isinstance(command, _BEGINS)


def _fills_the_disk(command: commands.Command) -> bool:
    """Whether a command is refused at the disk reserve; a resumed publisher is not (P10)."""
    resumes = isinstance(command, commands.OpenPublisher) and command.resume
    return isinstance(command, _FILLS_THE_DISK) and not resumes


def _block_of(record: records.Record) -> tuple[int, bool]:
    """The id of the block a record places, 0 for none, and whether the journal keeps its bytes."""
    if isinstance(record, records.Published | records.TransactionStaged):
        return record.block_id, record.durable
    if isinstance(record, records.PublishedTogether | records.BlockStaged | records.LinkStored):
        return record.block_id, True
    return 0, True
