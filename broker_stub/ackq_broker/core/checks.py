"""Validation of names and durations, and texts of errors, shared by all parts of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np

from ackq import limits
from ackq.errors import (
    InvalidArgumentError,
    LimitError,
    PermissionDeniedError,
    QueueNotFoundError,
)
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State

RESERVED_PREFIX: Final = "ackq."
# Takes dead letters whose own dead-letter queue does not exist (C13).
BUILT_IN_DEAD: Final = "ackq.dead"
# Characters with a meaning in `queuePattern` (S10) and in lists of names.
_PATTERN: Final = ",*?"

MAX_DURATION_MS: Final = 100 * 365 * 24 * 3600 * 1000


def check_new(kind: str, name: str) -> None:
    """Checks the name of a new object of this kind; raises InvalidArgumentError."""
    if not name:
        raise InvalidArgumentError(f"The name of the {kind} is empty; give one.")
    check_length(f"The name of the {kind}", name, limits.MAX_NAME_BYTES)
    if name.startswith(RESERVED_PREFIX):
        raise InvalidArgumentError(
            f"The {kind} '{name}' cannot be made: names that begin with '{RESERVED_PREFIX}' are "
            "reserved for the broker. Choose another.",
            name=name,
        )


def check_characters(kind: str, name: str) -> None:
    """Checks that a new name is no pattern, no list, and one line; raises InvalidArgumentError.

    Older versions accepted any name: existing objects keep theirs.
    """
    bad = sorted({each for each in name if each in _PATTERN or not each.isprintable()})
    if bad:
        raise InvalidArgumentError(
            f"The {kind} '{name}' cannot be made: its name has {', '.join(map(ascii, bad))}. Use "
            "no control characters, and none of , * ? (they have a meaning in lists and patterns).",
            name=name,
        )


def check_length(what: str, text: str, most: int) -> None:
    """Checks the size of a text in bytes; raises InvalidArgumentError."""
    size = len(text.encode())
    if size > most:
        raise InvalidArgumentError(
            f"{what} has {size} bytes; at most {most} are allowed. It begins '{text[:40]}'.",
            limit=most,
        )


def check_duration(what: str, duration_ms: int) -> None:
    """Checks that a duration is at most a hundred years; raises InvalidArgumentError."""
    if not 0 <= duration_ms <= MAX_DURATION_MS:
        raise InvalidArgumentError(
            f"{what} {duration_ms}: it must be 0 to {MAX_DURATION_MS} milliseconds, a hundred "
            "years.",
            limit=MAX_DURATION_MS,
        )


def check_number(what: str, number: int) -> None:
    """Checks that a client's number is at most 2^62 (I6); raises InvalidArgumentError."""
    if not 0 <= number <= limits.LARGEST_NUMBER:
        raise InvalidArgumentError(
            f"{what} {number}: it must be 0 to {limits.LARGEST_NUMBER}.",
            limit=limits.LARGEST_NUMBER,
        )


def check_batch_id(batch_id: int) -> None:
    """Checks the number of a batch (I6); raises InvalidArgumentError."""
    check_number("The id of a batch (the txnVersion of a batch write) cannot be", batch_id)


def queue_named(state: State, name: str) -> Queue:
    """Returns the queue of this name; raises QueueNotFoundError."""
    queue_id = state.queue_ids.get(name)
    if queue_id is None:
        raise QueueNotFoundError(
            f"There is no queue '{name}'. Declare it with `ackq queue declare {name}`, or see "
            "`ackq queue list`.",
            queue=name,
        )
    return state.queues[queue_id]


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun: '1 message', '2 messages'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def utc(at_us: int) -> str:
    """Formats a time as ISO 8601 text, to the second."""
    return f"{np.datetime64(at_us // 1_000_000, 's')}Z"


def foreign(owner: str, user: str) -> bool:
    """A10: whether an object of `owner` belongs to another user than `user`.

    An empty owner is nobody: objects made by an older version, or by a broker without users, are
    open to all; and without users nothing is compared.
    """
    return bool(owner and user and owner != user)


def check_owner(what: str, owner: str, user: str, remedy: str) -> None:
    """A10: refuses a user other than the owner; raises PermissionDeniedError."""
    if foreign(owner, user):
        missing = f"{what}, which is another user's"
        raise PermissionDeniedError(
            f"The user '{user}' does not have {missing}. {remedy}", permission=missing
        )


class _Owned(Protocol):
    """An object that belongs to a user; empty for nobody."""

    user: str


def check_share(what: str, user: str, most: int, there: int | Mapping[Any, _Owned]) -> None:
    """A5: refuses a user more than its share of a common bound; raises LimitError.

    Args:
        what: The objects, as a plural noun.
        user: The user that wants one more; empty where there are no users.
        most: The bound for all users.
        there: The number of objects of the user; or all objects, which are counted only when they
            could be that many.
    """
    share = limits.user_share(most)
    if not user or (there if isinstance(there, int) else len(there)) < share:
        return
    if isinstance(there, int) or sum(each.user == user for each in there.values()) >= share:
        raise LimitError(
            f"The user '{user}' has reached its share of {share} {what}; all users together have "
            f"{most}. Use fewer, or end some.",
            user=user,
            limit=share,
        )
