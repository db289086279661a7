"""Base class of the commands, their result, and a type that several of them share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ackq_broker.core.records import Record


class Command:
    """Base of the commands that `Core.decide` takes."""

    __slots__ = ()


class Decision(NamedTuple):
    """Result of a command: records to apply, and the reply.

    Attributes:
        records: To be applied in order, then appended to the journal as one unit (same group).
        reply: To be sent when the journal has synced up to the last record.
        after: When not None, the reply may be sent as soon as the journal has synced this sequence
            instead (transient publishes: the topology they depend on, P5). With no records and
            None, the reply waits for everything decided so far (I1).
    """

    records: tuple[Record, ...] = ()
    reply: Any = None
    after: int | None = None


class Routes(NamedTuple):
    """The routing keys of a block's rows.

    Attributes:
        keys: The distinct keys.
        codes: For each row the index of its key, int32; None: every row has the only key.
    """

    keys: tuple[str, ...]
    codes: NDArray[np.int32] | None = None
