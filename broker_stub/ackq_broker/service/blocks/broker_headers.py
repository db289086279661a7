"""Headers that the broker adds: a dead letter's origin and cause (C13), a rewound batch (S14).

Invariant: only the broker sets these headers; a publisher's headers of the same names are dropped.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.core.commands import Origin

QUEUE: Final = "ackq-dead-queue"
POSITION: Final = "ackq-dead-position"
CAUSE: Final = "ackq-dead-cause"
REASON: Final = "ackq-dead-reason"
DELIVERIES: Final = "ackq-dead-deliveries"
AT: Final = "ackq-dead-at"
FIRST_QUEUE: Final = "ackq-dead-first-queue"
COUNT: Final = "ackq-dead-count"
SESSION: Final = "ackq-dead-session"
BATCH: Final = "ackq-dead-batch"
REWOUND: Final = "ackq-rewound"

_NAMES: Final = pa.array(
    (QUEUE, POSITION, CAUSE, REASON, DELIVERIES, AT, FIRST_QUEUE, COUNT, SESSION, BATCH, REWOUND)
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Int64s = npt.NDArray[np.int64]


def with_broker_headers(part: block.Block, origin: Origin | None, rewound: int) -> block.Block:
    """Adds headers to rows, and removes their expiry, which dead-lettering and a rewind clear.

    Args:
        part: Rows of a stored block; row i has the i-th position and delivery count of `origin`.
        origin: The origin of all rows; None: they are no dead letters.
        rewound: As in `Piece`.
    """
    header, batch = part
    more = _headers_of(origin, batch.num_rows) if origin is not None else {}
    if rewound:
        more[REWOUND] = pa.repeat(pa.scalar(str(rewound - 2)), batch.num_rows)
    headers = batch.column("headers") if header.columns >> pb.COLUMN_HEADERS & 1 else None
    arrays: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays["headers"] = _extended(headers, more, batch.num_rows)
    changed = pb.BlockHeader()
    changed.CopyFrom(header)
    changed.columns = header.columns & ~(1 << pb.COLUMN_EXPIRES_AT) | 1 << pb.COLUMN_HEADERS
    schema = columns.stored_schema(changed.columns)
    rows = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return block.Block(changed, rows)


def _headers_of(origin: Origin, rows: int) -> dict[str, pa.Array]:
    """The values of each dead-letter header, one for each row."""
    assert len(origin.positions) == len(origin.delivery_counts) == rows
    constants = {
        QUEUE: origin.queue,
        CAUSE: origin.cause,
        REASON: origin.reason,
        AT: _rfc3339(origin.dead_lettered_us),
        FIRST_QUEUE: origin.first_queue,
        COUNT: str(origin.times),
    }
    if origin.session:
        constants[SESSION] = origin.session
    if origin.batch_id >= 0:
        constants[BATCH] = str(origin.batch_id)
    found = {name: pa.repeat(pa.scalar(text), rows) for name, text in constants.items()}
    found[POSITION] = pa.array(np.asarray(origin.positions, np.int64)).cast(pa.string())
    found[DELIVERIES] = pa.array(np.asarray(origin.delivery_counts, np.int64)).cast(pa.string())
    return found


def _extended(headers: pa.Array | None, more: dict[str, pa.Array], rows: int) -> pa.Array:
    """Builds a map column with more entries in each row, after the entries it has."""
    entries, counts = _own_entries(headers, rows)
    offsets = np.concatenate(([0], np.cumsum(counts + len(more))))
    # The destination of each entry: the publisher's entries first, then the others.
    order = np.empty(int(offsets[-1]), np.int64)
    own = np.arange(len(entries))
    shift = len(more) * np.repeat(np.arange(rows), counts)
    order[own + shift] = own
    for number in range(len(more)):
        order[offsets[:-1] + counts + number] = len(entries) + number * rows + np.arange(rows)
    keys = [pa.repeat(pa.scalar(name), rows) for name in more]
    items = list(more.values())
    if headers is not None:
        keys.insert(0, headers.keys.take(pa.array(entries)))
        items.insert(0, headers.items.take(pa.array(entries)))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.concat_arrays(keys).take(pa.array(order)),
        pa.concat_arrays(items).take(pa.array(order)),
    )


def _own_entries(headers: pa.Array | None, rows: int) -> tuple[_Int64s, _Int64s]:
    """Indices of a map column's remaining entries, and their number in each row."""
    if headers is None:
        return np.empty(0, np.int64), np.zeros(rows, np.int64)
    offsets = headers.offsets.to_numpy().astype(np.int64)
    valid: npt.NDArray[Any] = headers.is_valid().to_numpy(zero_copy_only=False)
    counts = np.where(valid, np.diff(offsets), 0)
    ends = np.cumsum(counts)
    entries = np.arange(int(ends[-1])) + np.repeat(offsets[:-1] - ends + counts, counts)
    foreign = pc.is_in(headers.keys, value_set=_NAMES).to_numpy(zero_copy_only=False)[entries]
    row_of = np.repeat(np.arange(rows), counts)
    return entries[~foreign], np.bincount(row_of[~foreign], minlength=rows)


def _rfc3339(at_us: int) -> str:
    """Formats a time as RFC 3339, to the microsecond."""
    at = _EPOCH + timedelta(microseconds=at_us)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
