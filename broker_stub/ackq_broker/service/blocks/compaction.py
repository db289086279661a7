"""Compaction: reclaims the disk space of dead messages in blocks and segments with live ones.

A snapshot deletes a segment without a live block; a block without a live row is dead. So blocks
that are mostly dead are rewritten without their dead rows, and then the blocks of mostly dead
segments are copied forward. Invariant: a row is left out only when it was dead before the new block
was appended to the journal; a dead row never becomes live again, so every prefix of the journal has
all rows that its state refers to.

The longest step on the event loop is finding the live rows of a batch in its queues (a million
runs: 30 ms; a block in 1,000 queues: 25 ms). While the broker is busy, about `_BUSY_BYTES` are read
and a twentieth of the time is used in each `_PERIOD_S`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from ackq import limits
from ackq.errors import AckqError, BlockNotFoundError, DamagedError, MalformedBlockError
from ackq_broker.core import views
from ackq_broker.core.columns import bitmaps
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.events import event
from ackq_broker.journal import Journal
from ackq_broker.service.blocks.compacted import compact

_log: Final = logging.getLogger(__name__)

_PERIOD_S: Final = 5.0
# Maximum bytes appended and freed in a period by an idle broker.
_QUIET_BYTES: Final = limits.MIB
# Blocks and segments with a smaller live share are rewritten. The rest takes at most
# 1 / 0.65 / 0.65 = 2.4 times the live bytes, or 2.5 with `_LOOK_AGAIN_BELOW`.
_QUIET_BELOW: Final = 0.65
# In a busy broker, most partly dead blocks soon die entirely without compaction.
_BUSY_BELOW: Final = 0.25
_BUSY_BYTES: Final = 16 * limits.MIB
_BUSY_S: Final = _PERIOD_S / 20
_BATCH_BYTES: Final = 4 * limits.MIB
_BATCH_RUNS: Final = 512
# A block with more runs than this is not rewritten: finding its live rows takes too long.
_MOST_RUNS: Final = 4096
# Pages of 1,024 runs that are examined between two turns of the event loop.
_SLICE_PAGES: Final = 64
# A smaller block is not worth a rewrite.
_LEAST_BYTES: Final = limits.KIB
# In a block of at least this size the payload is most of the bytes, unless its messages are tiny.
_LARGE_BYTES: Final = 4 * limits.KIB
# A block examined in vain is examined again once its live payload has shrunk to below this share.
_LOOK_AGAIN_BELOW: Final = 0.95

# Fewer reclaimed bytes are not logged.
_TOLD_BYTES: Final = limits.MIB

_EXAMINED: Final = np.dtype([("block", "<i8"), ("payload", "<f8")])


class _Sparse(NamedTuple):
    """Blocks that may be mostly dead, ascending: their runs, live payload and stored bytes."""

    block_ids: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64]
    payload: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]

    def only(self, chosen: npt.NDArray[np.bool_]) -> _Sparse:
        ids, runs, payload, lengths = self
        return _Sparse(ids[chosen], runs[chosen], payload[chosen], lengths[chosen])

    def batches(self) -> Iterator[_Sparse]:
        """Yields the blocks in batches of about `_BATCH_BYTES` and `_BATCH_RUNS`."""
        cuts = np.cumsum(self.lengths) // _BATCH_BYTES + np.cumsum(self.runs) // _BATCH_RUNS
        for number in np.unique(cuts).tolist():
            yield self.only(cuts == number)


class _Holders(NamedTuple):
    """The queue of each run of the sparse blocks, by block."""

    block: npt.NDArray[np.int64]
    queue: npt.NDArray[np.int64]

    def of(self, block_ids: npt.NDArray[np.int64]) -> list[int]:
        """The queues that have runs of the given blocks, which are in ascending order."""
        begins = np.searchsorted(self.block, block_ids).tolist()
        ends = np.searchsorted(self.block, block_ids, "right").tolist()
        parts = [self.queue[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return np.unique(np.concatenate(parts)).tolist()  # type: ignore[no-any-return]


class Compaction:
    """The compaction of one broker; `run` loops until it is cancelled.

    Args:
        engine: Knows which rows are live; its journal stores the blocks.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        nothing = np.empty(0, _EXAMINED)
        self._examined = {_QUIET_BELOW: nothing, _BUSY_BELOW: nothing}
        self._activity = engine.journal.activity_bytes
        self._finished = False

    async def run(self) -> None:
        """Compacts every `_PERIOD_S`, as much as the broker's other work allows."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                await self.step()
            except (AckqError, OSError) as error:
                _log.error("compaction failed: %s", error, extra=event("compaction_failed"))
            except Exception as error:
                self._engine.fail(error)
                raise

    async def step(self) -> None:
        """Compacts everything worthwhile if the broker was idle since the last step, else a little.

        Ends early when the broker is used in the meantime.
        """
        self._engine.free_dead_blocks()
        before, self._activity = self._activity, self._engine.journal.activity_bytes
        self._finished = self._finished and self._activity == before
        if self._activity - before > _QUIET_BYTES:
            await self._rewrite(_BUSY_BELOW, self._has_room, _BUSY_BYTES, _BUSY_S)
        elif not self._finished:
            await self._log_freed(self._compact)
            self._finished = self._engine.journal.activity_bytes == self._activity
        self._activity = self._engine.journal.activity_bytes

    async def _log_freed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Awaits `work` and logs by how much it shrank the data directory."""
        journal = self._engine.journal
        before = await self._engine.run(journal.file_bytes)
        await work()
        freed = before - await self._engine.run(journal.file_bytes)
        if freed >= _TOLD_BYTES:
            _log.info(
                "compaction gave %d MiB back to the disk",
                freed // limits.MIB,
                extra=event("compacted", bytes=freed),
            )

    async def _compact(self) -> None:
        """Rewrites blocks, then segments, and deletes the segments left empty."""
        await self._rewrite(_QUIET_BELOW, self._quiet)
        journal = self._engine.journal
        await self._engine.run(partial(journal.compact, _QUIET_BELOW, self._quiet))
        await self._engine.snapshots.delete_segments()

    def _quiet(self) -> bool:
        used = self._engine.journal.activity_bytes - self._activity
        return used <= _QUIET_BYTES and self._has_room()

    def _has_room(self) -> bool:
        """Whether the disk has room for copies and one more segment for the log (P8)."""
        free = self._engine.journal.disk_free_bytes()
        return not self._engine.alarms.stopping and free >= 2 * self._engine.journal.segment_bytes

    async def _rewrite(
        self,
        below: float,
        going: Callable[[], bool],
        most_bytes: int = 1 << 62,
        most_s: float = math.inf,
    ) -> None:
        """Rewrites blocks with a live share under `below`, within `most_bytes` and `most_s`."""
        read, taken_s = 0, 0.0
        sparse, holders = await self._sparse(below)
        for batch in sparse.batches():
            if read >= most_bytes or taken_s >= most_s or not going():
                return
            began_s = time.perf_counter()
            # Read at one moment, because a message may move from one queue to another.
            live = views.live_rows(
                self._engine.core.state, bitmaps.of(batch.block_ids), holders.of(batch.block_ids)
            )
            taken_s += time.perf_counter() - began_s
            await self._engine.run(partial(_rewrite, self._engine.journal, live, below))
            # Blocks that are pinned or staged, or moved to another queue, were not examined.
            self._note(batch.only(np.isin(batch.block_ids, tuple(live))), below)
            read += int(batch.lengths.sum())

    async def _sparse(self, below: float) -> tuple[_Sparse, _Holders]:
        """The blocks that may be worth a rewrite, without those already examined in vain."""
        loads = [np.empty((5, 0), np.int64)]
        for load in views.block_loads(self._engine.core.state):
            loads.append(load)
            if not len(loads) % _SLICE_PAGES:
                await asyncio.sleep(0)
        # A busy broker examines no block that may be whole, such as one in many queues.
        certain = below == _BUSY_BELOW
        found, holders = await self._engine.run(
            partial(_find, loads, self._engine.journal, below, certain=certain)
        )
        return self._unexamined(found, below), holders

    def _unexamined(self, found: _Sparse, below: float) -> _Sparse:
        """The found blocks not yet examined, or much emptier since; forgets all others."""
        known = self._examined[below]
        known = self._examined[below] = known[np.isin(known["block"], found.block_ids)]
        at = np.searchsorted(found.block_ids, known["block"])
        before = np.full(len(found.block_ids), np.inf)
        before[at] = known["payload"]
        return found.only(found.payload < _LOOK_AGAIN_BELOW * before)

    def _note(self, batch: _Sparse, below: float) -> None:
        known = self._examined[below]
        kept = known[~np.isin(known["block"], batch.block_ids)]
        new = np.empty(len(batch.block_ids), _EXAMINED)
        new["block"], new["payload"] = batch.block_ids, batch.payload
        self._examined[below] = np.concatenate((kept, new))


def _find(
    loads: Sequence[npt.NDArray[np.int64]], journal: Journal, below: float, *, certain: bool
) -> tuple[_Sparse, _Holders]:
    """Candidate blocks: live share that may be below `below`, from the live rows of each run.

    A block may be in many queues, with the same rows or others: its live payload is at least that
    of its largest run, and at most that of all its runs together. `certain` uses the upper bound.
    """
    block, count, live, size, queue = np.concatenate(loads, axis=1)
    order = np.argsort(block, kind="stable")
    ids, begins = np.unique(block[order], return_index=True)
    if not len(ids):
        return _Sparse(ids, ids, np.empty(0), ids), _Holders(ids, ids)
    runs = np.diff(begins, append=len(block))
    share = np.maximum.reduceat((live / count)[order], begins)
    largest = np.maximum.reduceat(size[order], begins)
    payload = np.add.reduceat(size[order], begins).astype(np.float64)
    lengths = journal.block_lengths(ids.astype(np.uint64))
    sparse = (lengths >= _LEAST_BYTES) & ((payload if certain else largest) < below * lengths)
    sparse &= (share < below) | (lengths >= _LARGE_BYTES)
    sparse &= runs <= _MOST_RUNS
    held = np.repeat(sparse, runs)
    holders = _Holders(block[order][held], queue[order][held])
    return _Sparse(ids, runs, payload, lengths).only(sparse), holders


def _rewrite(journal: Journal, live: dict[int, BitMap], below: float) -> None:
    """Rewrites the blocks whose compacted size is below `below` times their present size."""
    rewritten: list[tuple[int, bytes]] = []
    for block_id, rows in live.items():
        try:
            data = journal.read_block(block_id)
            smaller = compact(data, rows)
        except BlockNotFoundError:
            continue
        except (DamagedError, MalformedBlockError) as error:
            # A reader of the block gets the same error.
            _log.warning("compaction skips block %d: %s", block_id, error)
            continue
        if len(smaller) < below * len(data):
            rewritten.append((block_id, smaller))
    if rewritten:
        journal.rewrite_blocks(rewritten)
