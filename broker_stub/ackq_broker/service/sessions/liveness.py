"""The session holders that count as live (S3), and how long the others have been away (S5).

Does no I/O; the monotonic clock is injected. A holder is live while its liveness stream is open and
had a heartbeat within `HEARTBEAT_MS`, for `HOLDER_CUT_GRACE_MS` after that stream disconnected, and
for `HEARTBEAT_MS` after it attached (or this broker started) as long as no stream was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from ackq import limits


@dataclass(eq=False, slots=True)
class _Holder:
    """The liveness of a session's holder; `streams` counts its open liveness streams."""

    token: bytes
    heard_s: float
    streams: int = 0
    disconnected_s: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class HolderConnection:
    """One open liveness stream, from `Liveness.opened` to `Liveness.disconnected`."""

    holder: _Holder


class Liveness:
    """The present holder of each session, by incarnation.

    Args:
        clock: Monotonic seconds without the broker's own downtime and lateness, as `Uptime` (S5).
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holders: dict[str, _Holder] = {}

    def attached(self, incarnation: str, token: bytes) -> None:
        """Counts an attach of holder `token`, or its record at a start, as a heartbeat."""
        holder = self._holders.get(incarnation)
        if holder is None or holder.token != token:
            self._holders[incarnation] = _Holder(token, self._clock())
            return
        holder.heard_s = self._clock()
        holder.disconnected_s = None

    def opened(self, incarnation: str, token: bytes) -> HolderConnection:
        """Adds a liveness stream of a holder, which may have two while it reconnects."""
        self.attached(incarnation, token)
        holder = self._holders[incarnation]
        holder.streams += 1
        return HolderConnection(holder)

    def heard(self, stream: HolderConnection) -> None:
        """Counts a heartbeat on a liveness stream."""
        stream.holder.heard_s = self._clock()

    def disconnected(self, stream: HolderConnection) -> None:
        """Removes a liveness stream that ended; call once for each stream."""
        stream.holder.streams -= 1
        assert stream.holder.streams >= 0
        if not stream.holder.streams:
            stream.holder.disconnected_s = self._clock()

    def live(self, incarnation: str) -> bool:
        """Whether the session's holder counts as live now."""
        return incarnation in self._holders and self.away_s(incarnation) < 0

    def connected(self, incarnation: str) -> bool:
        """Whether the session's holder is live and has a liveness stream open."""
        return self.live(incarnation) and self._holders[incarnation].streams > 0

    def away_s(self, incarnation: str) -> float:
        """Seconds for which the session's holder has not counted as live; negative while it does.

        The incarnation must be known: attached since the broker started, and not forgotten.
        """
        holder = self._holders[incarnation]
        if holder.disconnected_s is not None:
            return self._clock() - holder.disconnected_s - limits.HOLDER_CUT_GRACE_MS / 1000
        return self._clock() - holder.heard_s - limits.HEARTBEAT_MS / 1000

    def away_ms(self, incarnation: str) -> int:
        """`away_s` in milliseconds; 0 for a live holder or an unknown incarnation."""
        if incarnation not in self._holders:
            return 0
        return max(0, int(1000 * self.away_s(incarnation)))

    def fenced(self, incarnation: str) -> None:
        """Fences the holder of an incarnation: it counts as away from now on (S8)."""
        now_s = self._clock()
        self._holders[incarnation] = _Holder(
            b"", now_s, disconnected_s=now_s - limits.HOLDER_CUT_GRACE_MS / 1000
        )

    def forget(self, incarnation: str) -> None:
        """Forgets an incarnation that ended."""
        self._holders.pop(incarnation, None)

    def keep(self, incarnations: Container[str]) -> None:
        """Forgets all incarnations except the given ones."""
        for incarnation in [each for each in self._holders if each not in incarnations]:
            del self._holders[incarnation]
