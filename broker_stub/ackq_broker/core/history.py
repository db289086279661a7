"""Histories of the journal (Q8): objects of an older one are refused until it is accepted.

Invariant: a publisher, session or writer always belongs to the history in which it began; objects
of the present history are never refused.
"""

from __future__ import annotations

from typing import Final

from ackq.errors import HistoryChangedError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import utc
from ackq_broker.core.commands import Decision
from ackq_broker.core.state.state import History, State

# Causes of a new history as text.
_CAUSES: Final = {
    "copied": "the data directory is a copy of another one",
    "declared": "an operator declared it restored",
    "repaired": "it was damaged and repaired",
}


def begin(state: State, history_id: str, cause: str, at_us: int) -> None:
    """Begins a history; all objects of earlier histories are refused from now on."""
    if history_id == state.history_id:
        return
    state.histories = (*state.histories, History(history_id, at_us, cause))
    state.admitted_history = state.history


def check(state: State, history: int, what: str, remedy: str) -> None:
    """Q8: refuses `what` if it began in an older history, with HistoryChangedError.

    Args:
        state: The state.
        history: The number of the history in which it began.
        what: The object, as the subject of a sentence.
        remedy: What its user can do instead of asking the operator.
    """
    if history >= state.admitted_history:
        return
    began, after, now = state.histories[history], state.histories[history + 1], state.histories[-1]
    cause = _CAUSES.get(after.cause, "its data directory is another one")
    since = f"{utc(after.began_us)}, because {cause}"
    later = f", and is {now.history_id} now" if now is not after else ""
    raise HistoryChangedError(
        f"{what} began in history {began.history_id} of this broker's journal. The journal became "
        f"history {after.history_id} at {since}{later}: messages and batches that were "
        "acknowledged before may be missing from it. An operator who has checked that nothing "
        "important is missing lets everything older continue with `ackq broker accept-history`. "
        f"{remedy}",
        history=began.history_id,
        present_history=now.history_id,
        changed_us=after.began_us,
        cause=after.cause,
    )


def accept(state: State, _command: commands.AcceptHistory, now_us: int) -> Decision:
    """Q8: an operator admits objects of older histories; replies how many were refused before."""
    refused = refused_by_history(state)
    decided = (records.HistoryAccepted(now_us),) if state.admitted_history else ()
    return Decision(decided, refused)


def apply_history_accepted(state: State, _sequence: int, _record: records.HistoryAccepted) -> None:
    """Admits all objects of older histories, until the next history begins."""
    state.admitted_history = 0


def refused_by_history(state: State) -> commands.RefusedByHistory:
    """Numbers of objects that are refused now, by kind."""
    oldest = state.admitted_history
    if not oldest:
        return commands.RefusedByHistory(0, 0, 0)
    return commands.RefusedByHistory(
        publishers=sum(each.history < oldest for each in state.publishers.values()),
        sessions=sum(each.history < oldest for each in state.sessions.values()),
        writers=sum(each.history < oldest for each in state.writers.values()),
        links=sum(each.history < oldest for each in state.links.values()),
    )
