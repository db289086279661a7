"""The queues that a session reads (S10): named, or found by a pattern with every call.

With the warnings about them: leases of other sessions, cycles through dead-letter queues.
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

# Pairs of a queue and its dead-letter queue that a warning names.
_MOST_NAMED: Final = 10
# Other sessions of the same queues that an advance looks at.
_MOST_OTHERS: Final = 1_000


def find(state: State, command: Advance, *, accepting: Session | None = None) -> tuple[int, ...]:
    """The ids of the queues to read, each once: in the order given, or of their declaration.

    A pattern may match none yet; a queue that is declared later joins (S10).

    Args:
        state: The state.
        command: Names the queues.
        accepting: The session whose lease the call accepts, if it does: what to do about a queue
            that is missing differs then (K1).

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
        try:
            return tuple(dict.fromkeys(queue_named(state, name).queue_id for name in names))
        except QueueNotFoundError as error:
            if accepting is None:
                raise
            raise _awaited(accepting, error) from error
    check_length("The pattern of queue names", pattern, limits.MAX_NAME_BYTES)
    return tuple(sorted(state.queue_ids[name] for name in matching(state, pattern)))


def matching(state: State, pattern: str) -> Iterator[str]:
    """The names of the queues that a pattern finds; built-in queues only where it names them."""
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
    """The other sessions on these queues; which of them are live, the service knows.

    Of more than `_MOST_OTHERS` some: an advance costs no more, however many others opened (I6).
    """
    every = chain.from_iterable(state.queues[queue_id].sessions for queue_id in queue_ids)
    return tuple(sorted(set(islice(every, _MOST_OTHERS)) - {name}))


def leased_elsewhere(
    state: State, queue_ids: tuple[int, ...], name: str
) -> tuple[LeasedElsewhere, ...]:
    """S9: leases of other sessions on these queues; those without messages are left out.

    An opening may follow one that was lost with its checkpoint, and a session without a name is
    never met again.
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
        f"The session '{name}' reads {named}{more}: what its query rejects comes back to it. Leave "
        "the dead-letter queue out, or choose a pattern that does not match it."
    )
    return (warning,)


def _awaited(session: Session, error: QueueNotFoundError) -> QueueNotFoundError:
    """K1: the checkpoint's batch is accepted as soon as the call can be answered."""
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
    """The expression of a pattern of names: `*` is any characters, `?` is one, and no more.

    The expression that `fnmatch` makes takes at most linear time for each `*`: a client's pattern
    must not hold up the broker.
    """
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
