"""Facts that permissions depend on: the queues of a session, the target of a writer (A2, A4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ackq import limits
from ackq_broker.core.sessions import queues, readers
from ackq_broker.core.state.state import Lease, Session, State


class SessionAccess(NamedTuple):
    """Facts that decide whether a caller may use a session.

    `queues` are the queues that it reads and the queues of the messages that can be fetched.
    `token` is its holder's, empty when there is none; `user` is the user that opened it.
    """

    session: str
    incarnation: str
    epoch: int
    token: bytes
    queues: tuple[str, ...]
    user: str = ""


def session_access(
    state: State, name: str, incarnation: str, *, retained: bool = False
) -> list[SessionAccess]:
    """The session of this name and the one of this incarnation; fewer if equal or unknown.

    With `retained`, the queues of their retained batches (S13) are named, and not of their leases.
    """
    names = dict.fromkeys((name, state.incarnations.get(incarnation, "")))
    found = [state.sessions[each] for each in names if each in state.sessions]
    return [_access(state, each, each.kept if retained else each.leases()) for each in found]


def _access(state: State, session: Session, leases: Iterable[Lease]) -> SessionAccess:
    leased = [segment.queue_id for lease in leases for segment in lease.segments]
    queue_ids = dict.fromkeys((*session.queue_ids, *leased))
    return SessionAccess(
        session.name,
        session.incarnation,
        session.epoch,
        session.holder.token,
        tuple(state.queues[each].name for each in queue_ids if each in state.queues),
        session.user,
    )


def queues_like(state: State, pattern: str) -> list[str]:
    """Names of the queues that a pattern finds; none if it is too long, which S10 refuses."""
    if len(pattern.encode()) > limits.MAX_NAME_BYTES:
        return []
    return list(queues.matching(state, pattern))


def committed_target(state: State, writer: str) -> str:
    """Target of a writer's last batch; empty where that is not known."""
    known = state.writers.get(writer)
    return known.target if known is not None else ""


def staged_bytes(state: State, stage_ids: Iterable[bytes]) -> dict[bytes, int]:
    """Payload bytes of the given stages that exist."""
    found = {each: state.stages.get(each) for each in stage_ids}
    return {each: stage.payload_bytes for each, stage in found.items() if stage is not None}


def sessions_of_run(state: State, run_id: str, user: str) -> list[str]:
    """The sessions that a user's run of a query has read (S6)."""
    return readers.sessions_of_run(state, run_id, user)


def queue_names(state: State) -> Collection[str]:
    """The names of all queues."""
    return state.queue_ids


def exchange_names(state: State) -> Collection[str]:
    """The names of all exchanges."""
    return state.exchanges


def binding_count(state: State) -> int:
    """The number of all bindings."""
    return state.bindings


def bindings_of_queues(state: State) -> dict[str, int]:
    """The number of bindings of each queue, by its name."""
    return {queue.name: len(queue.bindings) for queue in state.queues.values()}
