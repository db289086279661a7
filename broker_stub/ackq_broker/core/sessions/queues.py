"""Queues that a session reads (S10): named, or found by a pattern at each call.

Also the warnings about them: leases of other sessions, cycles through dead-letter queues.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from ackq import limits
from ackq.errors import CheckpointMismatchError, InvalidArgumentError, QueueNotFoundError
from ackq_broker.core.checks import (
    RESERVED_PREFIX,
    check_length,
    plural,
    queue_named,
)
from ackq_broker.core.commands import Advance, LeasedElsewhere
from ackq_broker.core.queues import dead_letters
from ackq_broker.core.sessions.lease import Positions, count_messages
from ackq_broker.core.state.state import Session, State

# The most pairs of a queue and its dead-letter queue that a warning names.
_MOST_NAMED: Final = 10
# The most other sessions on the same queues that an advance looks at.
_MOST_OTHERS: Final = 1_000


def find(state: State, command: Advance, *, accepting: Session | None = None) -> tuple[int, ...]:
    """Ids of the queues to read, each once: in the order given, or of declaration for a pattern.

    A pattern may match no queue yet; a queue that is declared later joins (S10).

    Args:
        state: The state.
        command: Names the queues.
        accepting: The session whose lease the call accepts, if any: the remedy for a missing queue
            differs then (K1).

    Raises:
        QueueNotFoundError: One of the named queues does not exist.
        InvalidArgumentError: Both names and a pattern are given, or neither.
    """
    names, pattern = command.queues, command.queue_pattern
    if bool(names) == bool(pattern):
        what = "names queues and gives a pattern as well" if names else "names no queue to read"
        raise InvalidArgumentError(
            f"The call {what}; give the names of one queue at least, or a pattern."
        )
    if names:
        try:
            return tuple(dict.fromkeys(queue_named(state, name).queue_id for name in names))
        except QueueNotFoundError as error:
            if accepting is None:
                raise
            raise _awaited(accepting, error) from error
    check_length("The pattern of queue names", pattern, limits.MAX_NAME_BYTES)
    return tuple(sorted(state.queue_ids[name] for name in matching(state, pattern)))


def matching(state: State, pattern: str) -> Iterator[str]:
    """Names of the queues that a pattern matches; built-in queues only by their exact name."""
    glob = name_pattern(pattern)
    for name in state.queue_ids:
        if name == pattern or (not name.startswith(RESERVED_PREFIX) and glob.match(name)):
            yield name


def check_held(state: State, session: Session, held: Positions, queue_ids: tuple[int, ...]) -> None:
    """S10: refuses to leave out a queue whose messages the lease holds, unless it was deleted."""
    for queue_id, positions in held.items():
        queue = state.queues[queue_id]
        if queue_id not in queue_ids and not queue.deleted:
            raise CheckpointMismatchError(
                f"The session '{session.name}' holds {plural(len(positions), 'message')} of queue "
                f"'{queue.name}', which this query no longer names. Name that queue until the "
                "batch is done, then leave it out.",
                session=session.name,
                queue=queue.name,
            )


def enter(state: State, session: Session, queue_ids: tuple[int, ...]) -> None:
    """Sets the queues that a session reads."""
    for queue_id in session.queue_ids:
        state.queues[queue_id].sessions.discard(session.name)
        state.queues[queue_id].use()
    session.queue_ids = queue_ids
    for queue_id in queue_ids:
        state.queues[queue_id].sessions.add(session.name)


def others(state: State, queue_ids: tuple[int, ...], name: str) -> tuple[str, ...]:
    """The other sessions on these queues, live or not (the service knows which are live).

    At most `_MOST_OTHERS` of them, so that the cost of an advance is bounded (I6).
    """
    every = chain.from_iterable(state.queues[queue_id].sessions for queue_id in queue_ids)
    return tuple(sorted(set(islice(every, _MOST_OTHERS)) - {name}))


def leased_elsewhere(
    state: State, queue_ids: tuple[int, ...], name: str
) -> tuple[LeasedElsewhere, ...]:
    """S9: leases of other sessions that hold messages of these queues.

    An opening may follow a session whose checkpoint was lost, and a lost session without a name is
    never opened again.
    """
    found, wanted = [], set(queue_ids)
    for other in others(state, queue_ids, name):
        session = state.sessions[other]
        held = {i: positions for i, positions in session.held().items() if i in wanted}
        if held:
            assert session.lease is not None
            found.append(LeasedElsewhere(other, count_messages(held), session.lease.leased_us))
    return tuple(found)


def circles(state: State, name: str, queue_ids: tuple[int, ...]) -> tuple[str, ...]:
    """S10, C13: the warning for a session that reads queues and their dead-letter queues."""
    pairs, wanted = [], set(queue_ids)
    for queue_id in queue_ids:
        queue = state.queues[queue_id]
        target = queue.properties.dead_letter_queue
        target_id = dead_letters.target_id(state, target) if target else None
        if target_id in wanted and target_id != queue_id:
            dead = state.queues[target_id].name
            pairs.append(f"queue '{queue.name}' and its dead-letter queue '{dead}'")
    if not pairs:
        return ()
    named = ", ".join(pairs[:_MOST_NAMED])
    more = f", and {len(pairs) - _MOST_NAMED} more such pairs" if len(pairs) > _MOST_NAMED else ""
    warning = (
        f"The session '{name}' reads {named}{more}: messages that its query rejects come back to "
        "it. Leave the dead-letter queue out, or choose a pattern that does not match it."
    )
    return (warning,)


def _awaited(session: Session, error: QueueNotFoundError) -> QueueNotFoundError:
    """K1: the error for a missing queue; the checkpoint's batch is accepted once it is declared."""
    queue = error.fields["queue"]
    return QueueNotFoundError(
        f"There is no queue '{queue}', and the batch that the checkpoint of session "
        f"'{session.name}' has, tags ({session.floor}, {session.end}], is not accepted yet. "
        f"Declare the queue again with `ackq queue declare {queue}` and start the query: that "
        "batch is accepted then.",
        queue=queue,
        session=session.name,
    )


def name_pattern(pattern: str) -> re.Pattern[str]:
    """Regular expression of a name pattern: `*` is any characters, `?` is one; no other wildcards.

    The expression that `fnmatch` makes takes at most linear time for each `*`: a client's pattern
    must not block the broker.
    """
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
