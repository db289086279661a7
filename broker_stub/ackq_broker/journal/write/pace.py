"""How much may wait for the disk: what it takes in two seconds, by what it took lately (P14).

Invariant: what is decided now is on disk soon, however slow the disk is, as nothing overtakes what
waits before it. At 20 MB/s the most that a fast disk may have waiting would be 13 s of answers.
"""

from __future__ import annotations

from typing import Final

from ackq import limits

_WAITS_S: Final = 2.0
# A group is written while the next ones come; so many of them make the bytes that may wait.
_GROUPS: Final = 4
# The part of the groups before in the rate.
_KEPT: Final = 3 / 4
# A smaller group takes what a sync takes, and says nothing of the rate.
_TELLING_BYTES: Final = 256 * limits.KIB


class Pace:
    """The rate of a disk; fed by one thread, read by any."""

    def __init__(self) -> None:
        self._bytes = self._seconds = 0.0
        self.waiting_bytes = limits.MIN_UNSYNCED_BYTES  # enough to find the rate out

    @property
    def group_bytes(self) -> int:
        """The most that is written as one group, but for a unit that is larger."""
        return min(limits.MAX_GROUP_BYTES, self.waiting_bytes // _GROUPS)

    def add(self, size: int, seconds: float) -> None:
        """One more group of `size` bytes was written and synced."""
        if size < _TELLING_BYTES:
            return
        self._bytes = _KEPT * self._bytes + size
        self._seconds = _KEPT * self._seconds + seconds
        fits = _WAITS_S * self._bytes / max(self._seconds, 1e-6)
        least, most = limits.MIN_UNSYNCED_BYTES, limits.MAX_UNSYNCED_BYTES
        self.waiting_bytes = int(min(max(fits, least), most))
