"""The liveness streams of session holders: signs of life in, an end for who was replaced (S3).

Invariant: the stream of a replaced holder ends with the error that names the new one, once that is
on disk (I1); the absence of an owner is counted from a moment at which this broker ran (S5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ackq import limits
from ackq.errors import AckqError, BrokerUnavailableError, InvalidArgumentError
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.service.engine.engine import Engine
from ackq_broker.service.rpc import Read, Write
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.transport.stream_buffers import RequestBuffer, alongside

_INBOX_BYTES: Final = 64 * limits.KIB


@dataclass(frozen=True, eq=False, slots=True)
class _Stream:
    """One open liveness stream: who it says holds the session, and where its requests wait."""

    holder: pb.HoldRequest
    requests: RequestBuffer[pb.HoldRequest]


class LivenessStreams:
    """All open liveness streams, by incarnation.

    Args:
        engine: Knows who holds which session.
        liveness: Which holders count as live. Every holder of the journal is taken as heard now:
            the time the broker was down is not theirs.
    """

    def __init__(self, engine: Engine, liveness: Liveness) -> None:
        self._engine = engine
        self._liveness = liveness
        self._streams: dict[str, set[_Stream]] = {}
        # The sessions whose owner may not be away for ever, with milliseconds, by incarnation.
        self._timeouts: dict[str, tuple[str, int]] = {}
        # Those of them that were told to be overdue, and have not come back.
        self._reported: set[str] = set()
        for session in engine.core.sessions():
            if session.holder is not None and session.holder.token:
                liveness.attached(session.incarnation, session.holder.token)
            else:
                liveness.fenced(session.incarnation)
            self.watch(session.session, session.incarnation, session.session_timeout_ms)

    def incumbent(self, session: str, incarnation: str) -> str:
        """The incarnation whose holder a caller with these names meets; empty for none."""
        found = self._engine.core.incumbent(session, incarnation)
        return found[0] if found is not None else ""

    def live(self, incarnation: str) -> bool:
        """Whether the holder of an incarnation counts as live."""
        return self._liveness.live(incarnation)

    def connected(self, incarnation: str) -> bool:
        """Whether the holder of an incarnation counts as live and has a stream open."""
        return self._liveness.connected(incarnation)

    def changed(self, before: str, after: str = "", token: bytes = b"") -> None:
        """A command met the incarnation `before` and left `after`, held by `token`; empty for none.

        The streams of holders that were replaced end.
        """
        if before != after:
            self._forget(before)
        if after:
            self._liveness.attached(after, token)
            self._reported.discard(after)
        self._end_replaced(before)

    def fenced(self, incarnation: str) -> None:
        """A command ended the holder of an incarnation that goes on without one (S5, S8)."""
        self._liveness.fenced(incarnation)
        self._end_replaced(incarnation)

    def watch(self, session: str, incarnation: str, timeout_ms: int) -> None:
        """From now on the owner of a session may be away for so long; 0: for ever (S5)."""
        if timeout_ms:
            self._timeouts[incarnation] = session, timeout_ms
        else:
            self._timeouts.pop(incarnation, None)

    def overdue(self) -> list[tuple[str, str]]:
        """Sessions, with incarnations, whose owner is away for longer than it may.

        Each is told once, until its owner attaches again.
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
        """Forget the holders of sessions that ended by themselves."""
        present = {session.incarnation for session in self._engine.core.sessions()}
        self._liveness.keep(present)
        for incarnation in [each for each in self._timeouts if each not in present]:
            self._forget(incarnation)

    async def hold(self, read: Read[pb.HoldRequest], write: Write[pb.HoldResponse]) -> None:
        """Serve one holder's stream until it half-closes.

        Raises:
            FencedError: Another holder took the session over.
            SessionNotFoundError: The session ended.
        """
        first = await read()
        if first is None:
            raise InvalidArgumentError("A hold stream begins with the session it holds.")
        self._check(first)
        stream = _Stream(first, RequestBuffer(_INBOX_BYTES))
        alive = self._liveness.opened(first.incarnation, first.token)
        streams = self._streams.setdefault(first.incarnation, set())
        streams.add(stream)

        async def receive() -> None:
            request: pb.HoldRequest | None = first
            while request is not None:
                await stream.requests.put(request, request.ByteSize())
                request = await read()
            stream.requests.close()

        async def answer() -> None:
            while await stream.requests.take():
                self._liveness.heard(alive)
                self._check(first)
                await self._engine.wait_synced()
                await write(pb.HoldResponse(heartbeat_ms=limits.HEARTBEAT_SEND_MS))

        def stop() -> None:
            stream.requests.fail(BrokerUnavailableError("The broker is shutting down; hold again."))

        try:
            with self._engine.listening(alarm=lambda _: None, stop=stop):
                await alongside(answer(), receive())
        finally:
            self._liveness.disconnected(alive)
            streams.remove(stream)
            if not streams:
                del self._streams[first.incarnation]

    def _forget(self, incarnation: str) -> None:
        self._liveness.forget(incarnation)
        self._timeouts.pop(incarnation, None)
        self._reported.discard(incarnation)

    def _end_replaced(self, incarnation: str) -> None:
        """Ends the streams of an incarnation whose holders do not hold it any more."""
        for stream in self._streams.get(incarnation, ()):
            try:
                self._check(stream.holder)
            except AckqError as error:
                stream.requests.fail(error)

    def _check(self, holder: pb.HoldRequest) -> None:
        """Refuses who does not hold the session (any more)."""
        self._engine.core.check_holder(
            holder.session, holder.incarnation, holder.epoch, holder.token
        )
