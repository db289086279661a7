"""Single messages with one destination, on their way to become a frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.publishing.unconfirmed import Destination


class Draft:
    """Messages in order; `payload_bytes` is what they take of the window."""

    def __init__(self, destination: Destination, started_at: float = 0.0) -> None:
        self.destination = destination
        self.started_at = started_at
        self.payload_bytes = 0
        self._rows: list[encoding.Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: encoding.Row, payload_bytes: int) -> None:
        """Puts a message last."""
        self._rows.append(row)
        self.payload_bytes += payload_bytes

    def takes(self, destination: Destination, payload_bytes: int) -> bool:
        """Whether a message may join: the same destination, and room for it."""
        return (
            destination == self.destination
            and self.payload_bytes + payload_bytes <= limits.FRAME_TARGET_BYTES
        )

    @property
    def full(self) -> bool:
        """Whether waiting for more is pointless."""
        return (
            len(self._rows) >= limits.FRAME_TARGET_ROWS
            or self.payload_bytes >= limits.FRAME_TARGET_BYTES
        )

    def content(self, *, persistent: bool) -> Callable[[], bytes]:
        """What makes the block, in the thread that sends it."""
        return partial(encoding.encode_rows, self._rows, persistent=persistent)
