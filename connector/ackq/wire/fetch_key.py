"""The proof that a fetch is the lease holder's (S2)."""

from __future__ import annotations

import hashlib


def fetch_key(token: bytes, incarnation: str, epoch: int) -> bytes:
    """The key of all fetches of one epoch: 32 bytes derived from the holder's token.

    A holder gives the key to its tasks in place of the token, with which they could attach. No
    listing shows the key or the token.

    Args:
        token: The holder's token.
        incarnation: The session's incarnation.
        epoch: The holder's epoch.
    """
    text = b"ackq fetch" + token + epoch.to_bytes(8, "little") + incarnation.encode()
    return hashlib.sha256(text).digest()
