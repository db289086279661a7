"""Which session holders count as live (S3): pure bookkeeping over an injected monotonic clock.

A holder is live while its liveness stream is open and was heard within `HEARTBEAT_MS`, for
`HOLDER_CUT_GRACE_MS` after that stream was cut, and for `HEARTBEAT_MS` after it attached (or this
broker started) as long as no stream came.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from ackq import limits


@dataclass(eq=False, slots=True)
class _Holder:
    """What is known of a session's holder; `streams` are its open liveness streams."""

    token: bytes
    heard_s: float
    streams: int = 0
    cut_s: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class LivenessStream:
    """One open liveness stream, from `Liveness.opened` to `Liveness.cut`."""

    holder: _Holder


class Liveness:
    """The present holder of each session, by incarnation.

    Args:
        clock: Monotonic seconds. It does not count the time the broker was down (S5).
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holders: dict[str, _Holder] = {}

    def attached(self, incarnation: str, token: bytes) -> None:
        """The holder `token` attached, or was found in the journal at start: a sign of life."""
        holder = self._holders.get(incarnation)
        if holder is None or holder.token != token:
            self._holders[incarnation] = _Holder(token, self._clock())
            return
        holder.heard_s = self._clock()
        holder.cut_s = None

    def opened(self, incarnation: str, token: bytes) -> LivenessStream:
        """The holder's liveness stream came; when it reconnects it may have two for a moment."""
        self.attached(incarnation, token)
        holder = self._holders[incarnation]
        holder.streams += 1
        return LivenessStream(holder)

    def heard(self, stream: LivenessStream) -> None:
        """A heartbeat came on the stream."""
        stream.holder.heard_s = self._clock()

    def cut(self, stream: LivenessStream) -> None:
        """The stream ended, in whatever way. Each stream is cut once."""
        stream.holder.streams -= 1
        assert stream.holder.streams >= 0
        if not stream.holder.streams:
            stream.holder.cut_s = self._clock()

    def live(self, incarnation: str) -> bool:
        """Whether the session's holder counts as live now."""
        holder = self._holders.get(incarnation)
        if holder is None:
            return False
        if holder.cut_s is not None:
            return self._clock() - holder.cut_s < limits.HOLDER_CUT_GRACE_MS / 1000
        return self._clock() - holder.heard_s < limits.HEARTBEAT_MS / 1000

    def forget(self, incarnation: str) -> None:
        """The incarnation ended."""
        self._holders.pop(incarnation, None)

    def keep(self, incarnations: Container[str]) -> None:
        """Forget all but these."""
        for incarnation in [each for each in self._holders if each not in incarnations]:
            del self._holders[incarnation]
