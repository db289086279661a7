"""The open streams (I6, A5), counted for the broker and each user; ended when their user changes.

Invariant: a stream does not go on after its user was removed or its permissions changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ackq import limits
from ackq.errors import AckqError, LimitError
from ackq_broker.security.callers import Caller


class _OpenStream:
    """An open stream: its caller, and the means to end it."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.scope = asyncio.timeout(None)
        self.ended: AckqError | None = None

    def end(self, reason: AckqError) -> None:
        """Ends the stream; the reason is raised where the stream waits."""
        if self.ended is None:  # else it is ending, and takes a moment
            self.scope.reschedule(asyncio.get_running_loop().time())
        self.ended = reason


class OpenStreams:
    """The streams of a broker, which have a bound (I6); unary calls have room besides them."""

    def __init__(self) -> None:
        self._count = 0
        self._of_users: dict[str, set[_OpenStream]] = {}

    @asynccontextmanager
    async def one_more(self, caller: Caller) -> AsyncIterator[None]:
        """Counts a stream from its start to its end; raises LimitError, or why it was ended."""
        self._check(caller)
        stream = _OpenStream(caller)
        self._add(stream)
        try:
            async with stream.scope:
                yield
        except TimeoutError as error:
            if stream.ended is None:
                raise
            raise stream.ended from error
        finally:
            self._remove(stream)

    def end(self, reasons: Mapping[str, AckqError]) -> int:
        """Ends the streams of the given users, each with its reason; returns their number."""
        ending = [
            (each, reason) for n, reason in reasons.items() for each in self._of_users.get(n, ())
        ]
        for stream, reason in ending:
            stream.end(reason)
        return len(ending)

    def _check(self, caller: Caller) -> None:
        if self._count >= limits.MAX_STREAMS:
            raise LimitError(
                f"The broker serves {limits.MAX_STREAMS} streams, its limit. Close some, or share"
                " publishers and channels.",
                limit=limits.MAX_STREAMS,
            )
        if caller.rights is None:
            return
        most, own = caller.rights.user.limits, self._of_users.get(caller.name, set())
        streams = most.streams or limits.user_share(limits.MAX_STREAMS)
        if len(own) >= streams:
            raise over_limit(caller, "streams", streams, "Close some, or share them.")
        if most.connections:
            peers = {each.caller.peer for each in own}
            if caller.peer not in peers and len(peers) >= most.connections:
                raise over_limit(
                    caller, "connections", most.connections, "Close some, or share them."
                )

    def _add(self, stream: _OpenStream) -> None:
        self._count += 1
        if stream.caller.rights is not None:
            self._of_users.setdefault(stream.caller.name, set()).add(stream)

    def _remove(self, stream: _OpenStream) -> None:
        self._count -= 1
        if stream.caller.rights is not None:
            own = self._of_users[stream.caller.name]
            own.discard(stream)
            if not own:
                del self._of_users[stream.caller.name]


def over_limit(caller: Caller, what: str, limit: int, remedy: str) -> LimitError:
    """The error for a user that is at one of its limits (A5)."""
    return LimitError(
        f"The user '{caller.name}' is at its limit of {limit} {what}. {remedy}",
        user=caller.name,
        limit=limit,
    )
