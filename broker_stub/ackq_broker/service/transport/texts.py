"""Texts of clients' choosing, cut to a bound before they are kept or sent (I6).

Invariant: an error fits the metadata of a gRPC answer, whatever names it holds.
"""

from __future__ import annotations

from typing import Final

from ackq import limits
from ackq.errors import InvalidArgumentError

# What an operator is shown of a client (label, host, application), and what a writer calls itself.
_LABEL_BYTES: Final = 4 * limits.MAX_NAME_BYTES
_CUT: Final = "..."


def shorten(text: str, most: int = _LABEL_BYTES) -> str:
    """The text, or its beginning if it has more than `most` bytes."""
    data = text.encode()
    if len(data) <= most:
        return text
    return data[: most - len(_CUT)].decode(errors="ignore") + _CUT


def check_identifier(what: str, text: str) -> None:
    """Refuses a text that is kept whole, because others are compared with it, and is too long.

    Raises:
        InvalidArgumentError: Names it and its beginning.
    """
    size = len(text.encode())
    if size > _LABEL_BYTES:
        raise InvalidArgumentError(
            f"The {what} '{text[:40]}...' has {size} bytes; at most {_LABEL_BYTES} are allowed."
            " Use a shorter one.",
            limit=_LABEL_BYTES,
        )
