"""Alarms: the reason why publishers are blocked (P14, O6), and callbacks of long-lived streams.

All of it runs on the broker's event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple

from ackq import limits
from ackq.errors import BrokerUnavailableError, DiskFullError
from ackq_broker.engine.events import event
from ackq_broker.engine.in_flight import InFlight

_log = logging.getLogger(__name__)

_DRAINING: Final = (
    "The broker is being drained for a restart, and accepts no new work: try again after the "
    "restart."
)


class AlarmKind(Enum):
    """The kind of the alarm that is on."""

    NONE = "none"
    DRAINING = "draining"
    DISK = "disk"
    MEMORY = "memory"


class Listener(NamedTuple):
    """A long-lived stream: its kind, such as `publish`, and its callbacks.

    `alarm` is called for a changed alarm, and `stop` for the broker's stop.
    """

    kind: str
    alarm: Callable[[str], object]
    stop: Callable[[], object]


class Alarms:
    """The reason why publishers are blocked, and the callbacks of the open streams.

    Args:
        disk: The alarm that is on while the disk is at its reserve.
        in_flight: Bytes that streams have sent and that are not handled, and the memory alarm.

    Attributes:
        draining: Whether the broker accepts no new work (O6).
        stopping: Whether the broker stops.
        ended_streams: Number of streams that ended since the start.
        on_resume: Called when the broker accepts new work again after a drain.
    """

    def __init__(self, disk: DiskAlarm, in_flight: InFlight) -> None:
        self._disk = disk
        self._in_flight = in_flight
        self.draining = self.stopping = False
        self.ended_streams = 0
        self.on_resume: list[Callable[[], object]] = []
        # Ordered by registration, so that a simulated run can be replayed.
        self._listeners: dict[Listener, None] = {}
        self._passed = AlarmKind.NONE

    @property
    def kind(self) -> AlarmKind:
        """The alarm that `reason` describes: draining comes before disk, and disk before memory."""
        if self.draining:
            return AlarmKind.DRAINING
        if self._disk.reason:
            return AlarmKind.DISK
        return AlarmKind.MEMORY if self._in_flight.reason else AlarmKind.NONE

    @property
    def reason(self) -> str:
        """Why publishers are blocked (P14, O6); empty while they are not."""
        if self.draining:
            return _DRAINING
        return self._disk.reason or self._in_flight.reason

    def check_taking(self) -> None:
        """Raises BrokerUnavailableError while the broker is drained (O6)."""
        if self.draining:
            raise BrokerUnavailableError(_DRAINING)

    @contextmanager
    def listening(
        self, kind: str, alarm: Callable[[str], object], stop: Callable[[], object]
    ) -> Iterator[None]:
        """Calls back a stream for alarms and for the broker's stop.

        `alarm` gets the reason, empty when the alarm is over; a present alarm is passed at once.
        """
        listener = Listener(kind, alarm, stop)
        self._listeners[listener] = None
        try:
            if self.reason:
                alarm(self.reason)
            if self.stopping:
                stop()
            yield
        finally:
            del self._listeners[listener]
            self.ended_streams += 1

    def streams(self) -> Counter[str]:
        """The long-lived streams that are open, by kind."""
        return Counter(listener.kind for listener in self._listeners)

    def poll_disk(self) -> None:
        """Polls the free space of the disk and passes a changed alarm on (P14).

        As for memory, one that the start has found is passed on before it may be over.
        """
        self._pass_on()
        self._disk.poll()
        self._pass_on()

    def poll_memory(self) -> None:
        """Polls the memory of the process and passes a changed alarm on (P14).

        Bytes that arrived may have turned it on since the last poll, and a stream that began then,
        or had waited for the disk, has told its client. So it is passed on before it may be over.
        """
        self._pass_on()
        self._in_flight.poll()
        self._pass_on()

    def drain(self, *, draining: bool) -> None:
        """Stops accepting new work (O6), or accepts it again."""
        if draining != self.draining:
            _log.info(
                "%s",
                "draining: the broker accepts no new work" if draining else "no longer draining",
            )
        self.draining = draining
        self._pass_on()
        if not draining:
            for resume in self.on_resume:
                resume()

    def stop(self) -> None:
        """Asks long-lived streams to end."""
        self.stopping = True
        for listener in tuple(self._listeners):
            listener.stop()

    def _pass_on(self) -> None:
        alarm, passed = self.reason, self._passed
        self._passed = self.kind
        if (passed == AlarmKind.NONE) != (self._passed == AlarmKind.NONE):
            _log.warning(
                "%s",
                alarm or "publishers are no longer blocked",
                extra=event(
                    "blocked" if alarm else "unblocked",
                    disk=bool(self._disk.reason),
                    memory=bool(self._in_flight.reason),
                ),
            )
        if passed != self._passed:
            for listener in tuple(self._listeners):
                listener.alarm(alarm)


class DiskAlarm:
    """Alarm that is on if the data directory's disk was at its reserve at the last poll (P8, P14).

    Attributes:
        reason: Why the broker accepts no messages; empty while the alarm is off.
        free_bytes: Free space of the disk at the last poll.
        reserve_bytes: Space that is kept free for commands that drain the broker.

    Args:
        free_bytes: Returns the free space of the disk.
        reserve_bytes: See the attribute.
    """

    def __init__(
        self, free_bytes: Callable[[], int], reserve_bytes: int = limits.DISK_RESERVE_BYTES
    ) -> None:
        self._read_free_bytes = free_bytes
        self.reserve_bytes = reserve_bytes
        self.reason = ""
        self.poll()

    def poll(self) -> str:
        """Reads the free space; returns `reason`."""
        self.free_bytes = free = self._read_free_bytes()
        self.reason = ""
        if free < self.reserve_bytes:
            self.reason = (
                f"The broker's disk has {free} bytes left; below {self.reserve_bytes} bytes the "
                "broker only serves requests that drain it. Free disk space, or consume messages."
            )
        return self.reason

    def check(self) -> None:
        """Raises DiskFullError while the alarm is on."""
        if self.reason:
            raise DiskFullError(self.reason, reserve=self.reserve_bytes)
