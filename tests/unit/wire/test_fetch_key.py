"""The key that proves a fetch."""

import hashlib

from ackq.wire.fetch_key import fetch_key


def test_as_the_protocol_says():
    """A4: SHA-256 of the prefix, the token, the epoch in 8 bytes and the incarnation."""
    data = b"ackq fetch" + b"t" * 16 + b"\x02\x01" + bytes(6) + b"incarnation"
    assert fetch_key(b"t" * 16, "incarnation", 0x0102) == hashlib.sha256(data).digest()


def test_each_epoch_has_its_own():
    """A4: each epoch, incarnation and holder token has another key."""
    keys = {fetch_key(t, i, e) for t in (b"a" * 16, b"b" * 16) for i in ("i", "j") for e in (1, 2)}
    assert len(keys) == 8
