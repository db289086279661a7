"""Content of a snapshot, opaque to the journal: the broker's time and the core's state.

    +-------------------------+---------------+
    | broker time, us, u64 LE | Core.snapshot |
    +-------------------------+---------------+

Invariant: the clock of a broker that starts from a snapshot begins no earlier than that time (Q8).
"""

from __future__ import annotations

import struct
from typing import Final

from ackq_broker.core.core import Core

_TIME: Final = struct.Struct("<Q")


def pack_state(core: Core, now_us: int) -> bytes:
    """The bytes of a snapshot of the core at a broker time in microseconds."""
    return _TIME.pack(now_us) + core.snapshot()


def unpack_state(data: bytes) -> tuple[Core, int]:
    """The core of a snapshot, and its broker time in microseconds.

    Raises:
        UnsupportedError: A newer broker wrote it.
    """
    (now_us,) = _TIME.unpack_from(data)
    return Core.restore(data[_TIME.size :]), now_us
