"""Limit of the bytes waiting for the disk: two seconds' worth at its recent rate (P14).

Invariant: a record decided now is on disk soon, however slow the disk is, as it waits only for the
records before it. At 20 MB/s the limit of a fast disk would delay answers by 13 s.
"""

from __future__ import annotations

from typing import Final

from ackq import limits

_WAITS_S: Final = 2.0
# A group is written while the next ones arrive; this many groups make up the waiting bytes.
_GROUPS: Final = 4
# The weight of the previous groups in the rate.
_KEPT: Final = 3 / 4
# A smaller group takes the time of a bare sync, and does not indicate the rate.
_TELLING_BYTES: Final = 256 * limits.KIB


class Pace:
    """The measured rate of a disk; fed by one thread, read by any."""

    def __init__(self) -> None:
        self._bytes = self._seconds = 0.0
        self.waiting_bytes = limits.MIN_UNSYNCED_BYTES  # enough to measure the rate

    @property
    def group_bytes(self) -> int:
        """The largest group in bytes; a larger unit is a group by itself."""
        return min(limits.MAX_GROUP_BYTES, self.waiting_bytes // _GROUPS)

    def add(self, size: int, seconds: float) -> None:
        """Records that a group of `size` bytes was written and synced in `seconds`."""
        if size < _TELLING_BYTES:
            return
        self._bytes = _KEPT * self._bytes + size
        self._seconds = _KEPT * self._seconds + seconds
        fits = _WAITS_S * self._bytes / max(self._seconds, 1e-6)
        least, most = limits.MIN_UNSYNCED_BYTES, limits.MAX_UNSYNCED_BYTES
        self.waiting_bytes = int(min(max(fits, least), most))
