"""The key that proves a fetch."""

import hashlib

from ackq.wire.fetch_key import fetch_key


def test_as_the_protocol_says():
    """A4: SHA-256 of the prefix, the token, the epoch in 8 bytes and the incarnation."""
    data = b"ackq fetch" + b"t" * 16 + b"\x02\x01" + bytes(6) + b"incarnation"
    assert fetch_key(b"t" * 16, "incarnation", 0x0102) == hashlib.sha256(data).digest()
