"""Commands of session readers (S)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyroaring import BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core.commands.decision import Command


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """The caller of a command, which becomes the holder (S3)."""

    token: bytes
    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Where a rewind begins (S14): a batch, or a time; with neither, all that is retained.

    Attributes:
        batch_id: The query's number of the first batch that is read again.
        from_us: Batches accepted at or after this time are.
        live: Names of the sessions with a live holder, which only the service knows.
    """

    batch_id: int | None = None
    from_us: int = 0
    live: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Advance(Command):
    """Accepts a session's lease, leases the next messages, or both (S4, S9). Reply: `Advanced`.

    Errors: AlreadyHeldError, FencedError, SessionNotFoundError, CheckpointMismatchError,
    LeaseHeldError, QueueNotFoundError, UnreadLeaseError.

    Attributes:
        incumbent_live: Whether the session's present holder counts as live; only the service can
            know (S3).
        horizon: 0 for none; else a new lease takes only messages that became ready at or before
            this sequence (K5).
        queue_pattern: Instead of `queues`: a glob that finds them, evaluated at every call (S10).
        session_timeout_ms: How long the holder may be absent before its lease is requeued; 0 for no
            timeout (S5). The service measures it, and decides `DetachSession`.
        refuse_unread: Refuse to accept a lease of which nothing was fetched or settled (S11).
        user: The user that owns a session opened by this call (A10); empty where there are no
            users.
        retain_ms: How long accepted leases stay readable (S13); `retain_bytes`: how much of them; 0
            for no such bound. With both 0 only the lease accepted last stays (K2).
        rewind: For an opening: what the replaced incarnation retained is leased again (S14).
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
    # Randomness comes from the caller: 32 hex digits for an opening, as any start at tag 0 may be.
    new_incarnation: str = ""
    queue_pattern: str = ""
    refuse_unread: bool = False
    user: str = ""
    retain_ms: int = 0
    retain_bytes: int = 0
    rewind: Rewind | None = None


class Chunk(NamedTuple):
    """A piece of a lease; it ends at `last_tag` and begins after the previous chunk."""

    last_tag: int
    payload_bytes: int


class Backlog(NamedTuple):
    """Messages in a session's queues.

    `oldest_us` is the publish time of the oldest message, 0 for none.
    """

    ready: int
    unacked: int
    oldest_us: int
    redelivered: int


class LeasedElsewhere(NamedTuple):
    """Messages of a session's queues that another session has leased, and since when."""

    session: str
    messages: int
    leased_us: int


class Advanced(NamedTuple):
    """Reply to `Advance`; `end_tag == start_tag` when nothing is leased.

    Attributes:
        other_sessions: Other sessions on the same queues; the service knows which of them are live.
        leased_elsewhere: Messages leased by other sessions; only for an opening, which may miss
            them (S9).
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
    """Attaches for a replay of exactly (start_tag, end_tag]. Reply: `Attached`.

    The range is the outstanding lease, or the one accepted last while it is kept (K2).

    Errors as `Advance`.

    Attributes:
        planned: Instead of a replay: the holder's query planned a batch without rows of the
            session, the `planned`-th since this holder began (S11).
    """

    session: str
    incarnation: str
    holder: HolderInfo
    start_tag: int
    end_tag: int
    incumbent_live: bool = False
    planned: int = 0


class Attached(NamedTuple):
    """Reply to `Attach`."""

    epoch: int
    chunks: tuple[Chunk, ...]
    attaches: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseSession(Command):
    """Ends a session and requeues its lease (S8). Reply: `Released`.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`).
    """

    session: str
    fence: bool = False
    incumbent_live: bool = False


class Released(NamedTuple):
    """Reply to `ReleaseSession`: messages requeued, and dropped because their queue was deleted."""

    released: int
    dropped: int


@dataclass(frozen=True, slots=True)
class RewindSession(Command):
    """Makes retained messages ready again (S14). Reply: `RewoundSession`.

    Errors: SessionNotFoundError, PreconditionFailedError (an outstanding lease; other readers; not
    retained).

    Attributes:
        with_rejected: Rejected messages as well.
        dry_run: Only count them.
    """

    session: str
    rewind: Rewind
    with_rejected: bool = False
    dry_run: bool = False


class RewoundSession(NamedTuple):
    """Reply to `RewindSession`: the batches that are read again, and their messages.

    `first_batch` is the number of the first one; -1 for none, or where it is not known.
    """

    first_batch: int
    batches: int
    messages: int


@dataclass(frozen=True, slots=True)
class DetachSession(Command):
    """S5: requeues the lease of a holder absent for its session timeout. Reply: `Released`.

    The session stays; a re-attach leases the messages again that are still ready. A session of
    another incarnation or epoch is left alone.
    """

    session: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NoteFetch(Command):
    """Notes the query run that reads a session in an epoch, and its batch. Reply: None.

    Settle calls find their lease by this note (S6), so it survives a restart; and any fetch in the
    present epoch proves the incarnation (S9). A fetch of a wrong range raises by itself.

    Errors: BatchChangedError (the batch has read before, and this lease was made later, S11).

    Attributes:
        query_id: Empty where a task does not know it, as on Spark Connect.
        last_tag: The last tag that is fetched: it distinguishes a replay of the lease accepted last
            from a fetch of the outstanding one. With 0 the batch id does, if that was noted.
        user: The user that fetches: only this user's calls refer to what the query has read (S6,
            S11).
        empty: The fetched range is empty: the batch has no rows of the session (S11).
    """

    session: str
    incarnation: str
    epoch: int
    query_id: str
    run_id: str
    batch_id: int
    label: str = ""
    last_tag: int = 0
    user: str = ""
    empty: bool = False


class LeaseOwner(NamedTuple):
    """Owner of a settled lease: a session, else the one that the run reads for the batch (S6).

    With an epoch it is the session's lease in that epoch (S3); 0 names none. Only runs of this
    `user` are considered.
    """

    session: str = ""
    query_id: str = ""
    run_id: str = ""
    batch_id: int = 0
    epoch: int = 0
    user: str = ""


class OutcomeGroup(NamedTuple):
    """Tags that get the same disposition.

    A delay of 0 means the queue's delay, and the default where the queue has none (C14).
    """

    disposition: Disposition
    tags: BitMap64


@dataclass(frozen=True, slots=True)
class StageOutcomes(Command):
    """Stages outcomes, as one whole stage (S6). Reply: int, tags staged.

    A tag is in at most one of its groups. Outcomes staged for the lease accepted last (K2) have no
    effect, and the reply is the same. An owner that names only the session means that lease if it
    holds all of the tags and the holder came after its accept.

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
    """Commits stages of outcomes, given as (id, tags) in order (S6). Reply: `CommittedOutcomes`.

    The last outcome of a tag in this order counts. A call without stages settles nothing: from a
    query, or a known reader of the lease, it replaces the outcomes of an older epoch. It is no
    error when its owner fetched nothing.

    Errors: as `StageOutcomes`, and StageMismatchError (a stage is missing or short).
    """

    owner: LeaseOwner
    stages: tuple[tuple[bytes, int], ...]


class CommittedOutcomes(NamedTuple):
    """Reply to `CommitOutcomes`: number of tags; whether the batch was accepted before."""

    tags: int
    accepted_before: bool


@dataclass(frozen=True, slots=True)
class AbortOutcomes(Command):
    """Drops uncommitted stages of outcomes. Reply: int, the number of stages found."""

    stage_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SettleLease(Command):
    """S8: an operator rejects or releases tags of a lease. Reply: `SettledLease`.

    Ranges include both ends. `incarnation` is the one whose tags are meant; "" for the present
    incarnation of the session.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`), UnknownDeliveryTagError,
    PreconditionFailedError (another incarnation; no dead-letter queue and not `discard`),
    InvalidArgumentError.
    """

    session: str
    outcome: Outcome
    ranges: tuple[tuple[int, int], ...]
    reason: str = ""
    fence: bool = False
    discard: bool = False
    incumbent_live: bool = False
    incarnation: str = ""


class SettledLease(NamedTuple):
    """Reply to `SettleLease`; `epoch` is the session's epoch from now on.

    Of the settled messages, `dropped` were removed: rejected without a dead-letter queue, or
    released to a queue that was deleted.
    """

    settled: int
    dead_lettered: int
    epoch: int
    dropped: int = 0
