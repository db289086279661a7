"""The disk alarm: whether the data directory's disk is at its reserve (P8, P14)."""

from __future__ import annotations

from collections.abc import Callable

from ackq import limits
from ackq.errors import DiskFullError


class DiskWatch:
    """The free space of a disk as of the last look.

    Args:
        free_bytes: Asks the disk.
    """

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self.alarm = ""
        self.look()

    def look(self) -> str:
        """Ask the disk; returns the reason to take nothing in, empty when there is none."""
        free = self._free_bytes()
        self.alarm = ""
        if free < limits.DISK_RESERVE_BYTES:
            self.alarm = (
                f"The broker's disk has {free} bytes left; below {limits.DISK_RESERVE_BYTES} the"
                " broker only serves what drains. Make room, or consume what waits."
            )
        return self.alarm

    def check(self) -> None:
        """Raises DiskFullError while the alarm is on."""
        if self.alarm:
            raise DiskFullError(self.alarm, reserve=limits.DISK_RESERVE_BYTES)
