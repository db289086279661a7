"""The checksum of all bytes of the journal: CRC-32, as zlib computes it.

`isal` computes the same value with the processor's CRC instructions; zlib is used where `isal` has
no build.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
