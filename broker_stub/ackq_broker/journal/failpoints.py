"""Named points at which a crash test makes the journal die; unarmed, each costs one empty call.

Invariant: nothing here reads the environment; the service parses `ACKQ_FAILPOINT` once and passes
the result in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from ackq.errors import InvalidArgumentError

Failpoint = Callable[[str], None]

# In the order in which a journal meets them.
POINTS: Final = (
    "before_write",  # a group is about to be written
    "after_write",  # written, not synced
    "after_sync",  # synced, nobody told
    "after_segment_create",  # a new segment has its name, nothing is in it
    "before_snapshot_rename",  # a snapshot is on disk under its temporary name
    "after_snapshot_rename",  # the snapshot counts, nothing was deleted yet
    "before_segment_delete",  # a dead segment is about to go
    "before_backup_rename",  # a backup is on disk under its temporary name
)


def unarmed(_point: str) -> None:
    """The failpoint of a journal that is not under test."""


def kill_at(text: str) -> Failpoint:
    """A failpoint that ends this process with SIGKILL.

    `text` is `POINT:HIT`, as in `after_write:3`: the third time; without HIT the first.

    Raises:
        InvalidArgumentError: Not of that form, or no such point.
    """
    point, _, count = text.partition(":")
    if point not in POINTS or not (count or "1").isdecimal() or int(count or "1") < 1:
        raise InvalidArgumentError(
            f"failpoint {text!r} is not POINT or POINT:HIT with HIT from 1; the points are "
            f"{', '.join(POINTS)}",
            failpoint=text,
        )
    left = int(count or "1")

    def hit(name: str) -> None:
        nonlocal left
        if name != point:
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit
