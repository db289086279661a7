"""Sessions as operators see them, without holder tokens (S3), and leases without a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from ackq import limits
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.answers import copied
from ackq_broker.core import commands
from ackq_broker.core.checks import plural
from ackq_broker.engine.clock import age_ms
from ackq_broker.service.transport.fields import check_id, shorten

# Maximum number of sessions that the warnings of an open name.
_MOST_NAMED: Final = 100


def holder_info(holder: pb.Holder) -> commands.HolderInfo:
    """Converts a holder from the wire to the core's form; raises InvalidArgumentError."""
    check_id("A holder token", holder.token)
    return commands.HolderInfo(
        holder.token, shorten(holder.host), holder.pid, shorten(holder.application)
    )


def orphaned_lease_warnings(
    absent: Sequence[commands.LeasedElsewhere], now_us: int
) -> Iterator[str]:
    """Yields warnings for an open on queues with messages leased by absent sessions.

    An earlier session of the same query, whose checkpoint is lost, may hold the leases (S9).
    """
    for lease in absent[:_MOST_NAMED]:
        age = timedelta(seconds=age_ms(lease.leased_us, now_us) // 1000)
        yield (
            f"The session '{lease.session}' has held {plural(lease.messages, 'message')} of these "
            f"queues for {age} (h:mm:ss), and no query is connected to it now. They wait for the "
            "query that has its checkpoint; if that query no longer exists, put them back with "
            f"`ackq session release {lease.session}`."
        )
    if len(absent) > _MOST_NAMED:
        more = len(absent) - _MOST_NAMED
        yield f"{more} more absent sessions hold messages of these queues; see `ackq session list`."


def absent_leases_line(absent: Sequence[commands.SessionInfo], now_us: int) -> str:
    """The log line that lists sessions with leased messages and no live holder (S5)."""
    held = ", ".join(
        f"'{session.session}' {session.leased} for "
        f"{timedelta(seconds=age_ms(session.leased_at_us, now_us) // 1000)}"
        for session in absent[:_MOST_NAMED]
    )
    more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
    return (
        f"{plural(len(absent), 'session')} without a live reader held messages: {held} "
        f"(h:mm:ss){more}. They wait for the queries with their checkpoints; `ackq session "
        "release NAME` puts back the messages of a query that no longer exists."
    )


def finished(session: commands.SessionInfo, now_us: int, *, live: bool) -> bool:
    """Whether a session is finished: it has no name, no lease, no live holder, and is old (S8)."""
    idle = session.floor_tag == session.end_tag and not live and not session.named
    return idle and now_us - session.heard_us >= limits.FINISHED_SESSION_S * 1_000_000


def session_info(
    session: commands.SessionInfo, now_us: int, *, live: bool, away_ms: int = 0
) -> pb.SessionInfo:
    """Converts a session to its wire form.

    Args:
        session: The session's state in the core.
        now_us: The broker's time.
        live: Whether its holder counts as live.
        away_ms: How long its holder has not counted as live.
    """
    holder = session.holder and copied(pb.Holder, session.holder, since_us=session.since_us)
    return copied(
        pb.SessionInfo,
        session,
        holder=holder,
        live=live,
        lease_age_ms=age_ms(session.leased_at_us, now_us),
        query_id=session.fetch.query_id,
        batch_id=session.fetch.batch_id,
        holes_by_reason=dict(session.holes_by_reason),
        away_ms=away_ms,
        retained_age_ms=age_ms(session.retained_since_us, now_us),
        held_back=session.refused,
    )
