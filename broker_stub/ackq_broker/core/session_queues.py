"""The queues that a session reads (S10): named, or found by a pattern with every call."""

from __future__ import annotations

import fnmatch
import re

from ackq import limits
from ackq.errors import CheckpointMismatchError, InvalidArgumentError
from ackq_broker.core.commands import Advance
from ackq_broker.core.leases import Positions
from ackq_broker.core.names import RESERVED_PREFIX, check_length, counted, queue_named
from ackq_broker.core.state import Session, State


def find(state: State, command: Advance) -> tuple[int, ...]:
    """The ids of the queues to read, each once: in the order given, or of their declaration.

    A pattern may match none yet; a queue that is declared later joins (S10).

    Raises:
        QueueNotFoundError: One of the named queues is not there.
        InvalidArgumentError: Both names and a pattern are given, or neither.
    """
    names, pattern = command.queues, command.queue_pattern
    if bool(names) == bool(pattern):
        what = "names queues and gives a pattern as well" if names else "names no queue to read"
        raise InvalidArgumentError(
            f"The call {what}; give the names of one queue at least, or a pattern."
        )
    if names:
        return tuple(dict.fromkeys(queue_named(state, name).queue_id for name in names))
    check_length("The pattern of queue names", pattern, limits.MAX_NAME_BYTES)
    glob = _glob(pattern)
    return tuple(
        sorted(
            queue_id
            for name, queue_id in state.queue_ids.items()
            if name == pattern or (not name.startswith(RESERVED_PREFIX) and glob.match(name))
        )
    )


def check_held(state: State, session: Session, held: Positions, queue_ids: tuple[int, ...]) -> None:
    """S10: refuses to leave out a queue whose messages the lease holds, unless it was deleted."""
    for queue_id, positions in held.items():
        queue = state.queues[queue_id]
        if queue_id not in queue_ids and not queue.deleted:
            raise CheckpointMismatchError(
                f"The session '{session.name}' holds {counted(len(positions), 'message')} of queue "
                f"'{queue.name}', which this query does not name any more. Name that queue until "
                "the batch is done, then leave it out.",
                session=session.name,
                queue=queue.name,
            )


def enter(state: State, session: Session, queue_ids: tuple[int, ...]) -> None:
    """The session reads these queues from now on."""
    for queue_id in session.queue_ids:
        state.queues[queue_id].sessions.discard(session.name)
    session.queue_ids = queue_ids
    for queue_id in queue_ids:
        state.queues[queue_id].sessions.add(session.name)


def others(state: State, queue_ids: tuple[int, ...], name: str) -> tuple[str, ...]:
    """The other sessions on these queues; which of them are live, the service knows."""
    names = {other for queue_id in queue_ids for other in state.queues[queue_id].sessions}
    return tuple(sorted(names - {name}))


def _glob(pattern: str) -> re.Pattern[str]:
    """`*` is any characters, `?` is one; nothing else is special.

    The expression that `fnmatch` makes takes no more than linear time for each `*`, whatever the
    name: what a client sends must not hold up the broker.
    """
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
