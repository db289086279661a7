"""The disk alarm: whether the data directory's disk is at its reserve (P8, P14)."""

from __future__ import annotations

from collections.abc import Callable

from ackq import limits
from ackq.errors import DiskFullError


class DiskAlarm:
    """The alarm as of the last poll of the disk's free space.

    Attributes:
        reason: Why the broker takes nothing in; empty while the alarm is off.

    Args:
        free_bytes: Returns the free space of the disk.
        reserve_bytes: What is kept free for what drains.
    """

    def __init__(
        self, free_bytes: Callable[[], int], reserve_bytes: int = limits.DISK_RESERVE_BYTES
    ) -> None:
        self._free_bytes = free_bytes
        self._reserve_bytes = reserve_bytes
        self.reason = ""
        self.poll()

    def poll(self) -> str:
        """Reads the free space; returns `reason`."""
        free = self._free_bytes()
        self.reason = ""
        if free < self._reserve_bytes:
            self.reason = (
                f"The broker's disk has {free} bytes left; below {self._reserve_bytes} the"
                " broker only serves what drains. Make room, or consume what waits."
            )
        return self.reason

    def check(self) -> None:
        """Raises DiskFullError while the alarm is on."""
        if self.reason:
            raise DiskFullError(self.reason, reserve=self._reserve_bytes)
