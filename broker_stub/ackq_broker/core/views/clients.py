"""Clients that the broker remembers: sessions and links with their holders, unfinished work."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core import history
from ackq_broker.core.commands import (
    FetchLabel,
    HolderInfo,
    LinkAck,
    LinkInfo,
    RefusedByHistory,
    SessionInfo,
    Unfinished,
)
from ackq_broker.core.links import operator
from ackq_broker.core.sessions import holder, readers
from ackq_broker.core.sessions.holder import session_named
from ackq_broker.core.sessions.lease import count_messages
from ackq_broker.core.state.state import Session, State


def list_sessions(state: State, name: str = "") -> list[SessionInfo]:
    """The sessions ordered by name, or one of them; raises SessionNotFoundError."""
    found = [session_named(state, name)] if name else [s for _, s in sorted(state.sessions.items())]
    return [_session_info(state, session) for session in found]


def session_incarnations(state: State) -> list[tuple[str, str, bool]]:
    """The name and incarnation of each session, and whether it waits with a lease, in no order.

    A session that the session timeout has detached does not wait.
    """
    return [
        (each.name, each.incarnation, each.lease is not None and not each.detached)
        for each in state.sessions.values()
    ]


def session_names(state: State) -> list[str]:
    """The names of the sessions, in no order."""
    return list(state.sessions)


def ready_total(state: State, session: str) -> int:
    """Number of ready messages in a session's queues, cheaply; 0 without such a session."""
    found = state.sessions.get(session)
    if found is None:
        return 0
    return sum(len(state.queues[queue_id].ready) for queue_id in found.queue_ids)


def incumbent(state: State, session: str, incarnation: str) -> tuple[str, bytes] | None:
    """The incarnation and token of the holder that a session's next caller meets.

    The service knows whether that holder is live (`incumbent_live`). None when there is none. With
    an incarnation the name is ignored, except for an incarnation that has a successor (S9).
    """
    incarnation = holder.standing(state, session, incarnation)
    name = state.incarnations.get(incarnation) if incarnation else session
    found = state.sessions.get(name) if name is not None else None
    return (found.incarnation, found.holder.token) if found is not None else None


def check_holder(state: State, session: str, incarnation: str, epoch: int, token: bytes) -> None:
    """S3: refuses a caller that does not hold the session in this epoch.

    Raises:
        FencedError: Another holder took over; the error names it.
        SessionNotFoundError: The incarnation is unknown or ended.
    """
    found = holder.find_session(state, session, incarnation)
    holder.check_epoch(found, epoch)
    holder.check_token(found, token)


def _session_info(state: State, session: Session) -> SessionInfo:
    lease, held_by = session.lease, session.holder
    holes = lease.holes if lease is not None else BitMap64()
    outcomes = lease.outcomes if lease is not None else None
    reader, last = readers.latest(session), session.accepted_last
    return SessionInfo(
        session=session.name,
        incarnation=session.incarnation,
        queues=tuple(state.queues[queue_id].name for queue_id in session.queue_ids),
        epoch=session.epoch,
        floor_tag=session.floor,
        end_tag=session.end,
        leased=count_messages(session.held()),
        holes=len(holes),
        holder=HolderInfo(held_by.token, held_by.host, held_by.pid, held_by.application)
        if held_by.token
        else None,
        since_us=held_by.since_us,
        proven=session.proven,
        leased_at_us=lease.leased_us if lease is not None else 0,
        fetch=FetchLabel(reader.query_id, reader.batch_id, state.labels.get(session.name, ""))
        if reader is not None
        else FetchLabel(),
        attaches=lease.attaches if lease is not None else 0,
        run_id=reader.run_id if reader is not None else "",
        session_timeout_ms=session.timeout_ms,
        detached=session.detached,
        holes_by_reason=tuple(sorted(lease.reasons.items())) if lease is not None else (),
        settled=len(outcomes.tags() - holes) if outcomes is not None else 0,
        queue_pattern=session.queue_pattern,
        fetched=lease is not None and lease.fetched,
        refused=session.history < state.admitted_history,
        named=not session.name.startswith(limits.ANONYMOUS_PREFIX),
        retain_ms=session.retain_ms,
        retain_bytes=session.retain_bytes,
        retained_batches=len(session.kept),
        retained_payload_bytes=sum(each.size for each in session.kept),
        retained_from_batch=session.kept[0].batch_id if session.kept else -1,
        retained_since_us=session.kept[0].accepted_us if session.kept else 0,
        heard_us=max(held_by.since_us, last.accepted_us if last is not None else 0),
    )


def list_links(state: State, name: str = "") -> list[LinkInfo]:
    """The links ordered by name, or one of them; raises LinkNotFoundError."""
    return operator.infos(state, name)


def link_names(state: State) -> list[str]:
    """The names of the links, in no order."""
    return list(state.links)


def link_info(state: State, name: str) -> LinkInfo:
    """One link; raises LinkNotFoundError."""
    (found,) = operator.infos(state, name)
    return found


def link_queue(state: State, name: str) -> str:
    """The queue that a link brings messages to; empty if there is no such link."""
    found = state.links.get(name)
    return state.queues[found.queue_id].name if found is not None else ""


def holding_queue(state: State, link: str) -> str:
    """The queue in which a link holds messages until they are settled (L9); empty for none."""
    found = state.links.get(link)
    if found is None or found.ack is not LinkAck.SETTLED:
        return ""
    return state.queues[found.queue_id].name


def links_to(state: State, queue: str) -> list[str]:
    """The names of the links that bring messages to a queue; none if there is no such queue."""
    queue_id = state.queue_ids.get(queue)
    return sorted(state.queues[queue_id].links) if queue_id is not None else []


def link_missing(state: State, name: str) -> int:
    """Number of held messages that were not redelivered in a link's subscription; 0: no link."""
    found = state.links.get(name)
    return len(found.missing(state.queues[found.queue_id])) if found is not None else 0


def link_holder(state: State, name: str) -> tuple[str, bytes] | None:
    """The incarnation of a link, and its holder's token; None if there is no such link."""
    found = state.links.get(name)
    return (found.incarnation, found.holder.token) if found is not None else None


def history_cause(state: State) -> str:
    """Why the journal's history began, as given by the `Start` that began it (Q8)."""
    return state.histories[-1].cause if state.histories else ""


def unfinished(state: State, buffering: AbstractSet[bytes]) -> Unfinished:
    """Work that a restart would interrupt (O6).

    Args:
        state: The state.
        buffering: Publishers with messages of a transaction that the core does not have yet.
    """
    open_ones = {each.publisher_id for each in state.publishers.values() if each.transaction}
    return Unfinished(
        unacked=sum(
            len(run.tags) for channel in state.channels.values() for run in channel.unacked.values()
        ),
        transactions=len(open_ones | buffering),
        stages=sum(not stage.sealed for stage in state.stages.values()),
    )


def refused_by_history(state: State) -> RefusedByHistory:
    """Numbers of objects that are refused because they began in an older history (Q8)."""
    return history.refused_by_history(state)
