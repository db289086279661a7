"""What the broker asks of itself: at its start, and from time to time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Start:
    """First command of a process: drops what did not survive the restart (Q7). Reply: `Started`."""

    history_id: str


class Started(NamedTuple):
    """Reply to `Start`: messages that were transient and are gone."""

    vanished: int


@dataclass(frozen=True, slots=True)
class Housekeep:
    """Drops what is past its retention.

    Publishers and stages after 7 days, unproven sessions after one. Reply: None.

    Attributes:
        live_sessions: Names of the sessions whose holder is live, which only the service can know;
            they stay.
    """

    live_sessions: frozenset[str] = frozenset()
