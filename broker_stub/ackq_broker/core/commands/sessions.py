"""Commands of session readers (S)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyroaring import BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core.commands.decision import Command


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """Who calls (S3)."""

    token: bytes
    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Advance(Command):
    """S4, S9. Reply: `Advanced`.

    Errors: AlreadyHeldError, FencedError, SessionNotFoundError, CheckpointMismatchError,
    LeaseHeldError, QueueNotFoundError.

    Attributes:
        incumbent_live: Whether the session's present holder counts as live; only the service can
            know (S3).
        horizon: 0 for none; else only what became ready at or before this sequence is leased anew
            (K5).
        queue_pattern: Instead of `queues`: a glob that finds them, anew with every call (S10).
        session_timeout_ms: How long the owner may be away before the lease goes back; 0 for ever
            (S5). The service measures it, and decides `DetachSession`.
    """

    session: str
    incarnation: str
    holder: HolderInfo
    queues: tuple[str, ...]
    start_tag: int
    max_messages: int = 0
    max_bytes: int = 0
    min_messages: int = 0
    max_delay_ms: int = 0
    horizon: int = 0
    open_and_lease: bool = False
    takeover: bool = False
    session_timeout_ms: int = 0
    incumbent_live: bool = False
    new_incarnation: str = ""  # randomness comes from outside: 32 hex digits for an opening
    queue_pattern: str = ""


class Chunk(NamedTuple):
    """A piece of a lease; it ends at `last_tag` and begins after the chunk before."""

    last_tag: int
    payload_bytes: int


class Backlog(NamedTuple):
    """What waits in a session's queues.

    `oldest_us` is the publish time of the oldest message, 0 for none.
    """

    ready: int
    unacked: int
    oldest_us: int
    redelivered: int


class LeasedElsewhere(NamedTuple):
    """What another session has leased of some queues, and since when."""

    session: str
    messages: int
    leased_us: int


class Advanced(NamedTuple):
    """Reply to `Advance`; `end_tag == start_tag` when nothing is leased.

    Attributes:
        other_sessions: On the same queues; which of them are live, the service knows.
        held_elsewhere: What those hold, told to an opening: it may miss just these messages (S9).
    """

    session: str
    incarnation: str
    epoch: int
    end_tag: int
    chunks: tuple[Chunk, ...]
    backlog: Backlog
    other_sessions: tuple[str, ...]
    attaches: int
    warnings: tuple[str, ...] = ()
    leased_elsewhere: tuple[LeasedElsewhere, ...] = ()


@dataclass(frozen=True, slots=True)
class Attach(Command):
    """Reply: `Attached`. Attaches for a replay of exactly (start_tag, end_tag].

    That is the outstanding lease, or the one accepted last while it is kept (K2).

    Errors as `Advance`.
    """

    session: str
    incarnation: str
    holder: HolderInfo
    start_tag: int
    end_tag: int
    incumbent_live: bool = False


class Attached(NamedTuple):
    """Reply to `Attach`."""

    epoch: int
    chunks: tuple[Chunk, ...]
    attaches: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseSession(Command):
    """Reply: `Released`.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`).
    """

    session: str
    fence: bool = False
    incumbent_live: bool = False


class Released(NamedTuple):
    """Reply to `ReleaseSession`: the messages put back; those dropped, their queue was deleted."""

    released: int
    dropped: int


@dataclass(frozen=True, slots=True)
class DetachSession(Command):
    """S5: the owner was away for longer than its session timeout. Reply: `Released`.

    The session stays, and a re-attach decides what of the lease it gets again. Nothing happens when
    the session is another by now, or its epoch is.
    """

    session: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NoteFetch(Command):
    """Reply: None. Says which run of a query reads a session in an epoch, for which batch.

    It is how a settle call finds its lease (S6), so it survives a restart; and whoever it is, a
    fetch in the present epoch proves the incarnation (S9). Nothing is refused: what is wrong with a
    fetch, the fetch itself says.

    Attributes:
        query_id: Empty where a task does not know it, as on Spark Connect.
        last_tag: The last tag that is fetched: it tells a replay of the lease accepted last from a
            fetch of the outstanding one. With 0 the batch id does, if the former was noted.
    """

    session: str
    incarnation: str
    epoch: int
    query_id: str
    run_id: str
    batch_id: int
    label: str = ""
    last_tag: int = 0


class LeaseOwner(NamedTuple):
    """Whose lease is settled: a session's, else the one that this run reads for this batch (S6)."""

    session: str = ""
    query_id: str = ""
    run_id: str = ""
    batch_id: int = 0


class OutcomeGroup(NamedTuple):
    """Tags that get the same disposition.

    A delay of 0 takes the queue's, and the default where the queue has none (C14).
    """

    disposition: Disposition
    tags: BitMap64


@dataclass(frozen=True, slots=True)
class StageOutcomes(Command):
    """S6. Reply: int, tags staged. One whole stage; a tag is in one of its groups at most.

    Of the lease accepted last (K2) what is staged has no effect, and the reply is the same. An
    owner that names the session alone means that lease if it holds all of the tags and the holder
    came after its accept.

    Errors: SessionNotFoundError, FencedError (the epoch of that run is over),
    UnknownDeliveryTagError (a tag outside of the lease), PreconditionFailedError (REJECTED without
    a dead-letter queue and not `discard`), InvalidArgumentError (one batch reads two sessions),
    LimitError.
    """

    stage_id: bytes
    owner: LeaseOwner
    label: str
    discard: bool
    groups: tuple[OutcomeGroup, ...]


@dataclass(frozen=True, slots=True)
class CommitOutcomes(Command):
    """S6. Reply: `CommittedOutcomes`. Stages as (id, tags), in the order in which they count.

    A call without stages is one that settles nothing: from a query, or whoever else is known to
    read the lease, it takes the place of what an older epoch said. When nothing was fetched by its
    owner, it is no error.

    Errors: as `StageOutcomes`, and StageMismatchError (one is missing or short).
    """

    owner: LeaseOwner
    stages: tuple[tuple[bytes, int], ...]


class CommittedOutcomes(NamedTuple):
    """Reply to `CommitOutcomes`: the tags it decides; whether the batch was accepted before."""

    tags: int
    accepted_before: bool


@dataclass(frozen=True, slots=True)
class AbortOutcomes(Command):
    """Reply: int, the stages that were there. What was committed stays."""

    stage_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SettleLease(Command):
    """S8. Reply: `SettledLease`. An operator rejects or releases tags; ranges include both ends.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`), UnknownDeliveryTagError,
    PreconditionFailedError (no dead-letter queue and not `discard`), InvalidArgumentError.
    """

    session: str
    outcome: Outcome
    ranges: tuple[tuple[int, int], ...]
    reason: str = ""
    fence: bool = False
    discard: bool = False
    incumbent_live: bool = False


class SettledLease(NamedTuple):
    """Reply to `SettleLease`; `epoch` is the session's from now on.

    Of what was settled, `dropped` is gone: there is no dead-letter queue, or, when it was to be put
    back, its queue was deleted.
    """

    settled: int
    dead_lettered: int
    epoch: int
    dropped: int = 0
