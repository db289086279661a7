"""The liveness streams of session holders: heartbeats in, an error for a replaced holder (S3).

Invariant: the stream of a replaced holder ends with the error that names the new one, once that is
on disk (I1); the absence of a holder is counted from a moment at which this broker ran (S5).
"""

from __future__ import annotations

from typing import ClassVar

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core import views
from ackq_broker.engine.engine import Engine
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.transport.duplex import BrokerStream
from ackq_broker.service.transport.rpc import Read, Write


class _Stream(BrokerStream[pb.HoldRequest, None, pb.HoldResponse]):
    """One liveness stream, of the holder that its first request names."""

    KIND: ClassVar[str] = "hold"
    AGAIN: ClassVar[str] = "hold the session again"
    BRINGS: ClassVar[bool] = False
    REQUESTS_BYTES: ClassVar[int] = 64 * limits.KIB

    def __init__(
        self,
        engine: Engine,
        liveness: Liveness,
        holder: pb.HoldRequest,
        read: Read[pb.HoldRequest],
        write: Write[pb.HoldResponse],
    ) -> None:
        super().__init__(engine, read, write)
        self._liveness = liveness
        self._holder = holder
        self.check()
        self._connection = liveness.opened(holder.incarnation, holder.token)

    async def run(self) -> None:
        """Serves the stream until it half-closes."""
        try:
            await self._requests.put(self._holder, 0)
            await self._serve()
        finally:
            self._liveness.disconnected(self._connection)

    def check(self) -> None:
        """Raises the core's refusal of a holder that no longer holds the session."""
        views.check_holder(
            self._engine.core.state,
            self._holder.session,
            self._holder.incarnation,
            self._holder.epoch,
            self._holder.token,
        )

    def _received(self, request: pb.HoldRequest) -> int:
        # Counted on receipt, not at the answer, which a slow disk may delay for too long.
        self._liveness.heard(self._connection)
        return request.ByteSize()

    async def _handle(self, _: list[pb.HoldRequest]) -> None:
        self.check()
        await self._engine.wait_synced()
        await self._write(pb.HoldResponse(heartbeat_ms=limits.HEARTBEAT_SEND_MS))


class LivenessStreams:
    """All open liveness streams, by incarnation.

    Args:
        engine: Knows the holder of each session.
        liveness: Which holders count as live. Every holder in the journal counts as heard now: the
            broker's downtime is not counted.
    """

    def __init__(self, engine: Engine, liveness: Liveness) -> None:
        self._engine = engine
        self._liveness = liveness
        self._streams: dict[str, dict[_Stream, None]] = {}
        # Sessions with a session timeout, and the timeout in milliseconds, by incarnation.
        self._timeouts: dict[str, tuple[str, int]] = {}
        # Incarnations that `overdue` has returned and whose holder has not attached again.
        self._reported: set[str] = set()
        for session in views.list_sessions(engine.core.state):
            if session.holder is not None and session.holder.token:
                liveness.attached(session.incarnation, session.holder.token)
            else:
                liveness.fenced(session.incarnation)
            self.watch(session.session, session.incarnation, session.session_timeout_ms)

    def incumbent(self, session: str, incarnation: str) -> str:
        """The incarnation whose holder a call with these names would replace; empty for none."""
        found = views.incumbent(self._engine.core.state, session, incarnation)
        return found[0] if found is not None else ""

    def changed(self, before: str, after: str = "", token: bytes = b"") -> None:
        """Applies a command that replaced incarnation `before` by `after`, held by `token`.

        Either may be empty, for none. Ends the streams of holders that were replaced.
        """
        if before != after:
            self._forget(before)
        if after:
            self._liveness.attached(after, token)
            self._reported.discard(after)
        self._end_replaced(before)

    def fenced(self, incarnation: str) -> None:
        """Fences the holder of an incarnation that a command left without one (S5, S8)."""
        self._liveness.fenced(incarnation)
        self._end_replaced(incarnation)

    def watch(self, session: str, incarnation: str, timeout_ms: int) -> None:
        """Sets the session timeout of a session; 0: none (S5)."""
        if timeout_ms:
            self._timeouts[incarnation] = session, timeout_ms
        else:
            self._timeouts.pop(incarnation, None)

    def overdue(self) -> list[tuple[str, str]]:
        """The sessions and incarnations whose holder is away beyond the session timeout (S5).

        Each is returned once, until its holder attaches again.
        """
        found = [
            (session, incarnation)
            for incarnation, (session, timeout_ms) in self._timeouts.items()
            if incarnation not in self._reported
            and self._liveness.away_s(incarnation) * 1000 > timeout_ms
        ]
        self._reported.update(incarnation for _, incarnation in found)
        return found

    def housekeep(self) -> None:
        """Forgets the holders of sessions that have ended."""
        sessions = views.session_incarnations(self._engine.core.state)
        present = {incarnation for _, incarnation, _ in sessions}
        self._liveness.keep(present)
        for incarnation in [each for each in self._timeouts if each not in present]:
            self._forget(incarnation)

    async def hold(self, read: Read[pb.HoldRequest], write: Write[pb.HoldResponse]) -> None:
        """Serves one holder's stream until it half-closes.

        Raises:
            FencedError: Another holder took the session over.
            SessionNotFoundError: The session ended.
        """
        first = await read()
        if first is None:
            raise InvalidArgumentError("A hold stream begins with the session it holds.")
        stream = _Stream(self._engine, self._liveness, first, read, write)
        streams = self._streams.setdefault(first.incarnation, {})
        streams[stream] = None
        try:
            await stream.run()
        finally:
            del streams[stream]
            if not streams:
                del self._streams[first.incarnation]

    def _forget(self, incarnation: str) -> None:
        self._liveness.forget(incarnation)
        self._timeouts.pop(incarnation, None)
        self._reported.discard(incarnation)

    def _end_replaced(self, incarnation: str) -> None:
        """Ends the streams of an incarnation whose holders were replaced."""
        for stream in self._streams.get(incarnation, ()):
            try:
                stream.check()
            except AckqError as error:
                stream.fence(error)
