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


@dataclass(frozen=True, slots=True)
class Tick:
    """Does what is due now (Q3, C14), when `Core.next_due_us` has come. Reply: `Ticked`.

    At most `ticking.MOST_BURIED` messages become dead letters; more are still due, and given out to
    nobody meanwhile.
    """


class Ticked(NamedTuple):
    """Reply to `Tick`.

    Attributes:
        expired: Messages whose TTL was over; `dead_lettered` of them went to a dead-letter queue.
        matured: Messages whose redelivery delay was over.
        deleted: Names of queues that nothing had used for as long as their `expires_ms`.
    """

    expired: int
    dead_lettered: int
    matured: int
    deleted: tuple[str, ...] = ()
