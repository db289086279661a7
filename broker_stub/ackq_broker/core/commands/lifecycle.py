"""Commands of the broker itself: start (Q7, Q8), timers (Q3, C14), retention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap64

from ackq_broker.core.commands.decision import Command


@dataclass(frozen=True, slots=True)
class Start(Command):
    """First command of a process: drops everything that does not survive a restart (Q7).

    Reply: `Started`.

    Attributes:
        history_id: The journal's history; when it differs from the previous one, older objects are
            refused (Q8).
        cause: Why that history began: "copied", "declared" or "repaired"; "" for a journal's first.
        lost_blocks: Blocks that cannot be read; unknown ones are ignored.
    """

    history_id: str
    cause: str = ""
    lost_blocks: BitMap64 = field(default_factory=BitMap64)


class Started(NamedTuple):
    """Reply to `Start`.

    Attributes:
        vanished: Number of transient messages that the restart dropped.
        lost: (queue, messages) that were dropped because their blocks cannot be read.
        lost_stages: Number of writers' stages lost with such blocks: their batches have to be run
            again.
    """

    vanished: int
    lost: tuple[tuple[str, int], ...] = ()
    lost_stages: int = 0


@dataclass(frozen=True, slots=True)
class AcceptHistory(Command):
    """Admits objects of older histories (Q8). Reply: `RefusedByHistory`, as it was before."""


class RefusedByHistory(NamedTuple):
    """Numbers of objects that are refused because they began in an older history (Q8)."""

    publishers: int
    sessions: int
    writers: int
    links: int = 0


@dataclass(frozen=True, slots=True)
class Housekeep(Command):
    """Drops objects past their retention.

    Publishers and stages after 7 days, unproven sessions after one. Reply: None.

    Attributes:
        live_sessions: Names of the sessions whose holder is live, which only the service can know;
            they stay.
    """

    live_sessions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GiveWay(Command):
    """Ends the oldest retention, with that much payload (S13). Reply: `GaveWay`."""

    payload_bytes: int


class GaveWay(NamedTuple):
    """Reply to `GiveWay`: the retained batches that ended, their payload, and their holders.

    A holder is "session 'orders'" or "queue 'in'"; of a queue, a batch is a group of messages that
    were accepted one after the other.
    """

    batches: int
    payload_bytes: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick(Command):
    """Processes due expiries and ends of delays (Q3, C14), at `views.next_due_us`. Reply: `Ticked`.

    At most `timers.MOST_DEAD_LETTERED` messages become dead letters; further ones stay due, and are
    not delivered meanwhile.
    """


class Ticked(NamedTuple):
    """Reply to `Tick`.

    Attributes:
        expired: Messages whose TTL was over; `dead_lettered` of them went to a dead-letter queue.
        matured: Messages whose redelivery delay was over.
        deleted: Names of queues that were unused for their `expires_ms`.
    """

    expired: int
    dead_lettered: int
    matured: int
    deleted: tuple[str, ...] = ()
