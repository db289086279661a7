"""Message ids of delivered messages that were published without one (L23).

Invariant: a message has the same id at each of its deliveries, and no other message has it: neither
in a queue that was declared again under the same name, nor in another journal.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.core.commands import MessageIdentity


def with_message_ids(part: block.Block, identity: MessageIdentity) -> block.Block:
    """Adds message ids to rows without one; returns the same block if all rows have one.

    Args:
        part: Rows of a stored block; row i has the i-th position of `identity`.
        identity: The identity of all rows.
    """
    header, batch = part
    assert len(identity.positions) == batch.num_rows
    made = _ids(identity)
    if header.columns >> pb.COLUMN_MESSAGE_ID & 1:
        ids = batch.column("message_id")
        lacking = pc.equal(pc.fill_null(ids, ""), "")
        if not pc.any(lacking).as_py():
            return part
        made = pc.if_else(lacking, made, ids)
    arrays: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays["message_id"] = made
    changed = pb.BlockHeader()
    changed.CopyFrom(header)
    changed.columns = header.columns | 1 << pb.COLUMN_MESSAGE_ID
    schema = columns.stored_schema(changed.columns)
    rows = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return block.Block(changed, rows)


def _ids(identity: MessageIdentity) -> pa.Array:
    prefix = f"ackq:{identity.history_id}:{identity.queue_id}:"
    positions = pa.array(np.asarray(identity.positions, np.int64)).cast(pa.string())
    return pc.binary_join_element_wise(prefix, positions, "")
