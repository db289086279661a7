"""The checksum of all bytes of the journal: CRC-32, as zlib computes it.

`isal` computes the same with the processor's instructions for it; where it has no build, zlib does.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
