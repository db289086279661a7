"""Dead segments whose files are kept to be written over, instead of being deleted.

A new segment needs memory for its pages and room on the disk; a reused one has both. A broker whose
messages come and go writes at twice the rate with spares, and at several times the rate where the
system returns freed memory to its host and takes it back. Invariant: a spare has a name that does
not count, so that a start removes it; that name is on the disk before the file is written over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ackq import limits
from ackq_broker.journal.files.directory import unfinished
from ackq_broker.journal.files.disk import Disk

_MOST: Final = 2
# An idle broker releases the disk space (I6).
_IDLE_S: Final = 30.0


class Spares:
    """The spare files of one log; thread-safe.

    Args:
        directory: The data directory.
        disk: Makes every change.
        segment_bytes: A larger file is not kept.
        clock: Monotonic seconds.

    Attributes:
        reserve_bytes: Free disk space reserved for requests that drain the broker (P8): with less
            than that and two segments, spares are deleted at once.
    """

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        segment_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self.reserve_bytes = limits.DISK_RESERVE_BYTES
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._files: deque[Path] = deque()
        self._used_s = clock()

    def keep(self, path: Path) -> None:
        """Removes a dead segment from the log: it becomes a spare, or is deleted."""
        with self._lock:
            kept = (
                len(self._files) < _MOST
                and path.stat().st_size <= self._segment_bytes
                # Otherwise a backup links it, too, and needs its bytes.
                and path.stat().st_nlink == 1
                and self._has_room()
            )
            if kept:
                self._disk.rename(path, unfinished(path))
                self._files.append(unfinished(path))
                self._used_s = self._clock()
        if not kept:
            self._disk.unlink(path)

    def take(self, path: Path) -> int | None:
        """Renames a spare to an unfinished segment and returns it open; None without a spare."""
        with self._lock:
            self._used_s = self._clock()
            if not self._files:
                return None
            self._disk.rename(self._files.popleft(), path)
        # Else a power cut could bring its old name back, with other bytes in it.
        self._disk.sync_directory(self._directory)
        return self._disk.reopen(path)

    def trim(self) -> None:
        """Deletes the spares when none was needed lately, or the disk is almost full."""
        with self._lock:
            idle = self._clock() - self._used_s > _IDLE_S
            wanted = not self._files or (not idle and self._has_room())
        if not wanted:
            self.close()

    def close(self) -> None:
        """Deletes the spares."""
        with self._lock:
            going, self._files = self._files, deque()
        for path in going:
            self._disk.unlink(path)

    def _has_room(self) -> bool:
        least = self.reserve_bytes + 2 * self._segment_bytes
        return self._disk.free_bytes(self._directory) >= least
