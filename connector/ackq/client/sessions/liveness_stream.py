"""Keeps a session's liveness stream open (S3).

One daemon thread that sends signs of life and reconnects by itself.

Invariant: once another holder has taken over, `fenced` says so for good and nothing more is sent.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import grpc

from ackq import limits
from ackq.client.connection import calls, errors, retry
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.errors import AckqError
from ackq.v1 import sessions_pb2 as pb

_log = logging.getLogger(__name__)

_tokens: dict[int, bytes] = {}


def holder(application: str = "") -> pb.Holder:
    """This process as a holder.

    The same random token for its whole life, another one after a fork (S3).
    """
    pid = os.getpid()
    token = _tokens.setdefault(pid, secrets.token_bytes(16))
    return pb.Holder(token=token, host=socket.gethostname(), pid=pid, application=application)


class LivenessStream:
    """The liveness of one holder; see `Session.hold`."""

    def __init__(self, endpoint: str, request: pb.HoldRequest, security: Security | None) -> None:
        self._endpoint = endpoint
        self._security = security
        self._request = request
        self._fenced: AckqError | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._call: calls.AnswerStream[pb.HoldResponse] | None = None
        self._interval_s = limits.HEARTBEAT_SEND_MS / 1000
        self._thread = threading.Thread(target=self._run, name="ackq-hold", daemon=True)
        self._thread.start()

    @property
    def fenced(self) -> AckqError | None:
        """Why the session is no longer held: another holder took over, or it is gone.

        None while it is held.
        """
        return self._fenced

    def close(self) -> None:
        """Ends the stream and the thread; the session's lease stays."""
        self._closed.set()
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        # Without end: whether the query goes on is decided by its next advance, not by its
        # liveness.
        backoff = retry.Backoff(None)
        while not self._closed.is_set():
            error = self._hold_once(backoff)
            if self._closed.is_set():
                return
            if not errors.is_transient(error):
                self._fenced = error
                return
            wait_s = backoff.next_wait_s()
            _log.info("Liveness stream cut, trying again in %.1f s: %s", wait_s, error)
            self._closed.wait(wait_s)

    def _hold_once(self, backoff: retry.Backoff) -> AckqError:
        """One stream; why it ended."""
        ended = threading.Event()
        try:
            with self._lock:
                if self._closed.is_set():
                    return errors.unavailable(self._endpoint, "closed")
                call = calls.hold(
                    grpc_channel(self._endpoint, self._security), self._signs_of_life(ended)
                )
                self._call = call
            for answer in call:
                backoff.reset()
                if answer.heartbeat_ms:
                    self._interval_s = min(limits.HEARTBEAT_SEND_MS, answer.heartbeat_ms) / 1000
        except grpc.RpcError as rpc:
            return errors.from_rpc(rpc, self._endpoint)
        finally:
            ended.set()
        return errors.unavailable(self._endpoint, "the broker ended the liveness stream")

    def _signs_of_life(self, ended: threading.Event) -> Iterator[pb.HoldRequest]:
        """Runs on gRPC's sending thread; `ended` wakes it when the stream is gone."""
        while not ended.is_set():
            sent_at = time.monotonic()
            yield self._request
            ended.wait(max(0.0, sent_at + self._interval_s - time.monotonic()))
