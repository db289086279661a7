"""Keeps a session's liveness stream open (S3): sends heartbeats and reconnects by itself.

Invariant: once another holder has taken over, `fenced` stays set and nothing more is sent.
"""

from __future__ import annotations

import os
import secrets
import socket
from types import TracebackType
from typing import Self

import grpc

from ackq import limits
from ackq.client.connection import calls
from ackq.client.connection.duplex import DuplexStream, Send, Wait
from ackq.client.connection.security import Security
from ackq.errors import AckqError
from ackq.v1 import sessions_pb2 as pb

_tokens: dict[int, bytes] = {}


def holder(application: str = "") -> pb.Holder:
    """This process as a holder.

    The same random token for its whole life, another one after a fork (S3).
    """
    pid = os.getpid()
    token = _tokens.setdefault(pid, secrets.token_bytes(16))
    return pb.Holder(token=token, host=socket.gethostname(), pid=pid, application=application)


class _Heartbeats:
    """State machine of a liveness stream: a heartbeat at once, and then one per interval."""

    done = False

    def __init__(self, request: pb.HoldRequest) -> None:
        self.interval_s = limits.HEARTBEAT_SEND_MS / 1000
        self._send = Send(request)
        self._sent_at: float | None = None  # on the present stream

    def next_action(self, now: float) -> Send[pb.HoldRequest] | Wait:
        """The next heartbeat, when it is due."""
        if self._sent_at is not None and now < self._sent_at + self.interval_s:
            return Wait(self._sent_at + self.interval_s)
        self._sent_at = now
        return self._send

    def on_disconnect(self) -> None:
        """Makes a heartbeat due at once on the next stream."""
        self._sent_at = None


class LivenessStream(DuplexStream[_Heartbeats, pb.HoldRequest, pb.HoldResponse]):
    """The liveness of one holder; see `Session.hold`.

    It reconnects without end: whether the query goes on is decided by its next advance, not by its
    liveness.
    """

    name = "liveness stream"
    thread_name = "ackq-hold"

    def __init__(self, endpoint: str, request: pb.HoldRequest, security: Security | None) -> None:
        super().__init__(endpoint, security, _Heartbeats(request), retry_total_ms=None)
        self._fenced: AckqError | None = None
        with self.lock:
            self._start()

    @property
    def fenced(self) -> AckqError | None:
        """Why the session is no longer held: another holder took over, or it is gone.

        None while it is held.
        """
        return self._fenced

    def close(self) -> None:
        """Ends the stream and the thread; the session's lease stays."""
        self.abandon()
        self.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _connect(
        self, channel: grpc.Channel, call_number: int
    ) -> calls.AnswerStream[pb.HoldResponse]:
        return calls.hold(channel, self._requests(call_number))

    def _on_answer(self, answer: pb.HoldResponse) -> None:
        self._backoff.reset()
        if answer.heartbeat_ms:
            with self.lock:
                shortest_ms = min(limits.HEARTBEAT_SEND_MS, answer.heartbeat_ms)
                self._state.interval_s = shortest_ms / 1000
                self._changed.notify_all()

    def _on_disconnect(self) -> None:
        with self.lock:
            self._state.on_disconnect()

    def _on_end(self, error: AckqError | None) -> None:
        if not self._abandoned:
            self._fenced = error
