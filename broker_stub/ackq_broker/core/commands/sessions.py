"""Commands of session readers (S)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """Who calls (S3)."""

    token: bytes
    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Advance:
    """S4, S9. Reply: `Advanced`.

    Errors: AlreadyHeldError, FencedError, SessionNotFoundError, CheckpointMismatchError,
    LeaseHeldError, QueueNotFoundError.

    Attributes:
        incumbent_live: Whether the session's present holder counts as live; only the service can
            know (S3).
        horizon: 0 for none; else only what became ready at or before this sequence is leased anew
            (K5).
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


class Advanced(NamedTuple):
    """Reply to `Advance`; `end_tag == start_tag` when nothing is leased."""

    session: str
    incarnation: str
    epoch: int
    end_tag: int
    chunks: tuple[Chunk, ...]
    backlog: Backlog
    other_sessions: tuple[str, ...]
    attaches: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attach:
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


@dataclass(frozen=True, slots=True)
class ReleaseSession:
    """Reply: int, messages put back.

    Errors: SessionNotFoundError, AlreadyHeldError (live and not `fence`).
    """

    session: str
    fence: bool = False
    incumbent_live: bool = False
