"""Base class of the commands, their result, and a type that several of them share."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyroaring import BitMap

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


class Route(NamedTuple):
    """One distinct routing key of a block.

    `rows` are the block's rows that have it, None means every row.
    """

    routing_key: str
    rows: BitMap | None = None
