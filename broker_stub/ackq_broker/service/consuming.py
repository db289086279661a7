"""`ConsumingService`: shown by reflection, and refused with what to use instead."""

from __future__ import annotations

from typing import Any

from ackq.errors import UnsupportedError
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame
from ackq_broker.service.rpc import Read, Write


class ConsumingService:
    """Rules C1-C16, which this broker does not serve yet."""

    async def consume(
        self, _read: Read[pb.ConsumeRequest], _write: Write[frame.Frame[Any]]
    ) -> None:
        """A channel: refused."""
        raise UnsupportedError(
            "This broker does not serve channels (ConsumingService) yet; read the queue through a"
            " session."
        )
