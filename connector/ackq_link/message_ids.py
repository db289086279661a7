"""The ids under which messages go out. Rule L23."""

from __future__ import annotations

import uuid

import pyarrow as pa


def message_ids(rows: pa.RecordBatch) -> list[str]:
    """The id of each row.

    The edge gives each message one (L23); for one of a version that does not, it is a random one at
    each try.
    """
    ids = (
        rows.column("message_id").to_pylist()
        if "message_id" in rows.schema.names
        else [None] * rows.num_rows
    )
    return [each or f"ackq:{uuid.uuid4().hex}" for each in ids]
