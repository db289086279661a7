"""What the broker gives the journal as a snapshot: its time and the core's state.

    +-------------------------+---------------+
    | broker time, us, u64 LE | Core.snapshot |
    +-------------------------+---------------+

Invariant: a broker that starts from a snapshot goes on no earlier than the time in it (Q8).
"""

from __future__ import annotations

import struct
from typing import Final

from ackq_broker.core.core import Core

_TIME: Final = struct.Struct("<Q")


def pack_state(core: Core, now_us: int) -> bytes:
    """A snapshot's bytes."""
    return _TIME.pack(now_us) + core.snapshot()


def unpack_state(data: bytes) -> tuple[Core, int]:
    """The core of a snapshot, and the time it was made at.

    Raises:
        UnsupportedError: A newer broker wrote it.
    """
    (now_us,) = _TIME.unpack_from(data)
    return Core.restore(data[_TIME.size :]), now_us
