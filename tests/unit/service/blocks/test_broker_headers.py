"""The origin of dead letters, as headers."""

import numpy as np
import pyarrow as pa

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.core.commands import Origin
from ackq_broker.service.blocks.broker_headers import with_broker_headers

DEAD_US = 1_700_000_000_123_456


def origin(count):
    """An origin of rows with positions 10, 11, ... that were delivered 1, 2, ... times."""
    positions, deliveries = np.arange(10, 10 + count), np.arange(1, 1 + count)
    return Origin("work", positions, deliveries, "rejected", "no JSON", DEAD_US, "first", 2)


def test_headers_name_the_origin():
    """C13: headers of a dead letter name queue, position, cause, reason, counts and time.

    A publisher's own headers come first; those under reserved names are removed. A null map counts
    as empty, and the rows may be cut from a larger block.
    """
    schema = columns.stored_schema(columns.bits(("headers",)))
    own = [[("a", "0")], None, [("k", "v"), ("ackq-dead-queue", "forged")], [("c", "2")]]
    batch = pa.record_batch([pa.array(own, columns.HEADERS)], schema=schema).slice(1, 2)
    header = pb.BlockHeader(columns=columns.bits(("headers",)), rows=2)
    part = with_broker_headers(block.Block(header, batch), origin(2), 0)
    assert part.batch.column("headers").to_pylist() == [
        [
            *kept,
            ("ackq-dead-queue", "work"),
            ("ackq-dead-cause", "rejected"),
            ("ackq-dead-reason", "no JSON"),
            ("ackq-dead-at", "2023-11-14T22:13:20.123456Z"),
            ("ackq-dead-first-queue", "first"),
            ("ackq-dead-count", "2"),
            ("ackq-dead-position", position),
            ("ackq-dead-deliveries", deliveries),
        ]
        for kept, position, deliveries in (([], "10", "1"), ([("k", "v")], "11", "2"))
    ]
