"""One bidirectional call of the ackq protocol, read on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc

from ackq import limits
from ackq.v1 import messages_pb2
from tests.wire.brokers.dialect import Cut, Refused
from tests.wire.brokers.streams import TIMEOUT_S, EventLog

OPTIONS = (
    ("grpc.max_send_message_length", limits.MAX_FRAME_BYTES + limits.MIB),
    ("grpc.max_receive_message_length", limits.MAX_FRAME_BYTES + limits.MIB),
    # Two connections of a scenario are two connections.
    ("grpc.use_local_subchannel_pool", 1),
)
CONDITIONS = {
    "FAILED_PRECONDITION": "precondition_failed",
    "NOT_FOUND": "not_found",
    "INVALID_ARGUMENT": "invalid",
    "ABORTED": "aborted",
}
_DETAIL_KEY = "ackq-error-bin"


class Closed(Exception):  # noqa: N818 - how a stream ends in good order
    """The call ended with status OK."""


class Stream:
    """Sends what it is given, hands each response to `take`, and notes the end in `log`."""

    def __init__(
        self, method: Any, first: Any, log: EventLog[Any], take: Callable[[Any], None]
    ) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._log = log
        self._take = take
        self.send(first)
        self._call = method(iter(self._requests.get, None), wait_for_ready=True)
        self._reader = threading.Thread(target=self._read, name="stream", daemon=True)
        self._reader.start()

    def send(self, request: Any) -> None:
        """One more request."""
        self._requests.put(request)

    def half_close(self) -> None:
        """Ends the requests and waits until the broker ended the call."""
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
    """What the broker said, or that it said nothing."""
    call: Any = error
    metadata = dict(call.trailing_metadata() or ())
    if _DETAIL_KEY not in metadata:
        return Cut(f"{call.code().name}: {call.details()}")
    detail = messages_pb2.ErrorDetail.FromString(metadata[_DETAIL_KEY])
    condition = CONDITIONS.get(call.code().name, "other")
    return Refused(condition, detail.code, detail.message, detail.fields)
