"""Messages with which connections end again and again, for a reason that is not known. Rule L22.

Invariant: a message is held back only on a connection that was opened after its last cut, so none
is while the remote broker takes no connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A message that was alone in flight at this many cuts is suspected to be their cause.
CUTS: Final = 3
# Most messages that are remembered.
_MOST: Final = 10_000


@dataclass(slots=True)
class _Suspect:
    cuts: int = 0
    reason: str = ""
    due: bool = False
    held_back: bool = False


class Suspects:
    """Messages that were alone in flight at a cut and have no answer since, by fingerprint."""

    def __init__(self) -> None:
        self._all: dict[bytes, _Suspect] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __contains__(self, fingerprint: bytes) -> bool:
        return fingerprint in self._all

    def cut(self, fingerprint: bytes, reason: str) -> bool:
        """Counts a cut; returns whether this message was held back before for earlier ones."""
        suspect = self._all.get(fingerprint)
        if suspect is None:
            if len(self._all) >= _MOST:
                del self._all[next(iter(self._all))]
            suspect = self._all[fingerprint] = _Suspect()
        suspect.cuts += 1
        suspect.reason = reason
        suspect.due = suspect.cuts >= CUTS
        return suspect.held_back

    def held_back(self, fingerprint: bytes) -> str:
        """Why a message is to be held back now, once for each cut; empty: publish it."""
        suspect = self._all.get(fingerprint)
        if suspect is None or not suspect.due:
            return ""
        suspect.due, suspect.held_back = False, True
        return (
            f"{suspect.cuts} connections ended while it was the only message in flight, the last:"
            f" {suspect.reason}"
        )

    def answered(self, fingerprint: bytes) -> None:
        """Forgets a message: the remote broker has answered it."""
        self._all.pop(fingerprint, None)
