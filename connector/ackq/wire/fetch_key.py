"""The proof that a fetch is the lease holder's (S2)."""

from __future__ import annotations

import hashlib


def fetch_key(token: bytes, incarnation: str, epoch: int) -> bytes:
    """The key of all fetches of one epoch: 32 bytes that follow from the holder's token.

    A holder gives it to its tasks in place of the token, which could attach. No listing shows
    either.

    Args:
        token: The holder's.
        incarnation: The session's.
        epoch: The holder's.
    """
    text = b"ackq fetch" + token + epoch.to_bytes(8, "little") + incarnation.encode()
    return hashlib.sha256(text).digest()
