"""One bidirectional call of the ackq protocol, read on its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc

from tests.fakes.raw_client import DETAIL_KEY, error_of
from tests.wire.brokers.dialect import Cut, Refused
from tests.wire.brokers.streams import TIMEOUT_S, EventLog

CONDITIONS = {
    "FAILED_PRECONDITION": "precondition_failed",
    "NOT_FOUND": "not_found",
    "INVALID_ARGUMENT": "invalid",
    "ABORTED": "aborted",
}


class Closed(Exception):  # noqa: N818 - how a stream ends in good order
    """The call ended with status OK."""


class Stream:
    """Sends requests, hands each response to `take`, and notes the end in `log`."""

    def __init__(self, method, first, log: EventLog[Any], take: Callable[[Any], None]) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._log = log
        self._take = take
        self.send(first)
        self._call = method(iter(self._requests.get, None), wait_for_ready=True)
        self._reader = threading.Thread(target=self._read, name="stream", daemon=True)
        self._reader.start()

    def send(self, request: Any) -> None:
        """Sends one more request."""
        self._requests.put(request)

    def half_close(self) -> None:
        """Ends the requests, and waits until the broker ends the call."""
        self._requests.put(None)
        self._reader.join(TIMEOUT_S)
        assert not self._reader.is_alive(), f"not ended within {TIMEOUT_S} s of the half-close"

    def _read(self) -> None:
        try:
            for response in self._call:
                self._take(response)
        except grpc.RpcError as error:
            self._log.end(_verdict(error))
        except Exception as error:  # noqa: BLE001 - the test waits for it, and shall see it
            self._log.end(error)
        else:
            self._log.end(Closed())
        finally:
            self._requests.put(None)


def _verdict(error: grpc.RpcError) -> Exception:
    """The broker's refusal, or Cut if the broker gave none."""
    call: Any = error
    if DETAIL_KEY not in dict(call.trailing_metadata() or ()):
        return Cut(f"{call.code().name}: {call.details()}")
    told, status = error_of(error)
    return Refused(CONDITIONS.get(status, "other"), told.code, told.message, told.fields)
