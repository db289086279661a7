"""Keeps a session's liveness stream open (S3): sends heartbeats and reconnects by itself.

Invariant: once another holder has taken over, `fenced` stays set and no more heartbeats are sent.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Final

import grpc

from ackq import limits
from ackq.client.connection import calls
from ackq.client.connection.broker import Broker
from ackq.client.connection.heartbeats import HeartbeatStream
from ackq.errors import AckqError, HistoryChangedError, SessionNotFoundError
from ackq.v1 import sessions_pb2 as pb

_tokens: dict[int, bytes] = {}
# Another broker may answer for a while, and then the session's again.
_LOST: Final = (SessionNotFoundError, HistoryChangedError)


def holder(application: str = "") -> pb.Holder:
    """Describes this process as the holder of a session.

    The random token is the same for the lifetime of the process, and a new one after a fork (S3).
    """
    pid = os.getpid()
    token = _tokens.setdefault(pid, secrets.token_bytes(16))
    return pb.Holder(token=token, host=socket.gethostname(), pid=pid, application=application)


class LivenessStream(HeartbeatStream[pb.HoldRequest, pb.HoldResponse]):
    """The liveness stream of one holder; see `Session.hold`.

    It reconnects without limit: whether the query continues is decided by its next advance, not by
    its liveness. Closing the stream does not change the session's lease.
    """

    name = "liveness stream"
    thread_name = "ackq-hold"
    _fenced: AckqError | None = None

    def __init__(self, broker: Broker, request: pb.HoldRequest) -> None:
        super().__init__(broker, lambda: request)

    @property
    def fenced(self) -> AckqError | None:
        """Why the session is not held: another holder took over, or the broker does not know it.

        None while the session is held. A broker that does not know it is asked again.
        """
        return self._fenced

    def _connect(
        self, channel: grpc.Channel, call_number: int
    ) -> calls.AnswerStream[pb.HoldResponse]:
        return calls.hold(channel, self._requests(call_number))

    def _on_answer(self, answer: pb.HoldResponse) -> None:
        super()._on_answer(answer)
        self._fenced = None
        if answer.heartbeat_ms:
            with self.lock:
                shortest_ms = min(limits.HEARTBEAT_SEND_MS, answer.heartbeat_ms)
                self._state.interval_s = shortest_ms / 1000
                self._changed.notify_all()

    def _may_reconnect(self, error: AckqError) -> bool:
        if isinstance(error, _LOST):
            self._fenced = error
            return True
        return super()._may_reconnect(error)

    def _on_end(self, error: AckqError | None) -> None:
        if not self._abandoned:
            self._fenced = error
