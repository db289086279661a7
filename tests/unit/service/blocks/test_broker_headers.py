"""The origin of dead letters, as headers."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from ackq.v1 import messages_pb2 as pb
from ackq.wire import block, columns
from ackq_broker.core.commands import Origin, Piece, Run
from ackq_broker.service.blocks.broker_headers import with_broker_headers
from ackq_broker.service.blocks.frames import FrameBuilder
from tests.fakes.blocks import decoded, encoded, rows

DEAD_US = 1_700_000_000_123_456
SOON = datetime(2030, 1, 1, tzinfo=UTC)


def origin(count):
    """An origin of rows with positions 10, 11, ... that were delivered 1, 2, ... times."""
    positions, deliveries = np.arange(10, 10 + count), np.arange(1, 1 + count)
    return Origin("work", positions, deliveries, "rejected", "no JSON", DEAD_US, "first", 2)


def headers_of(part):
    return [dict(entries) for entries in part.batch.column("headers").to_pylist()]


def test_headers_name_the_origin():
    """C13: headers of a dead letter name queue, position, cause, reason, counts and time."""
    part = with_broker_headers(decoded(body=[b"a", b"b"]), origin(2), 0)
    assert headers_of(part) == [
        {
            "ackq-dead-queue": "work",
            "ackq-dead-position": str(position),
            "ackq-dead-cause": "rejected",
            "ackq-dead-reason": "no JSON",
            "ackq-dead-deliveries": str(deliveries),
            "ackq-dead-at": "2023-11-14T22:13:20.123456Z",
            "ackq-dead-first-queue": "first",
            "ackq-dead-count": "2",
        }
        for position, deliveries in ((10, 1), (11, 2))
    ]


def test_own_headers_stay_and_forged_ones_go():
    """C13: a publisher's own headers come first; its headers under reserved names are removed."""
    own = [[("k", "v"), ("ackq-dead-queue", "forged")], [], [("x", "1"), ("y", "2")]]
    part = with_broker_headers(decoded(body=[b"a", b"b", b"c"], headers=own), origin(3), 0)
    found = part.batch.column("headers").to_pylist()
    left = [entries[: len(entries) - 8] for entries in found]
    assert left == [[("k", "v")], [], [("x", "1"), ("y", "2")]]
    assert [dict(entries)["ackq-dead-queue"] for entries in found] == ["work"] * 3


def test_sliced_and_null_headers():
    """C13: dead-letter headers of rows cut from a larger block; a null map counts as empty."""
    schema = columns.stored_schema(columns.bits(("headers",)))
    array = pa.array([[("a", "0")], None, [("b", "1")], [("c", "2")]], columns.HEADERS)
    batch = pa.record_batch([array], schema=schema).slice(1, 2)
    header = pb.BlockHeader(columns=columns.bits(("headers",)), rows=2)
    part = with_broker_headers(block.Block(header, batch), origin(2), 0)
    assert [len(entries) for entries in part.batch.column("headers").to_pylist()] == [8, 9]
    assert headers_of(part)[1]["b"] == "1"


def test_frames_of_dead_letters_and_others():
    """C13, Design 6: a frame may hold dead letters and others; a dead letter has no expiry.

    A reader that does not ask for headers gets none.
    """
    blocks = {1: encoded(body=[b"a", b"b"], expires_at=[SOON, None]), 2: encoded(body=[b"c"])}
    pieces = [
        Piece(1, "dead", (0, 2), (Run(1, 2, 1),), origin(2)),
        Piece(2, "dead", (0, 1), (Run(3, 1, 1),)),
    ]
    frame = FrameBuilder(pieces, blocks.__getitem__).next_frame()
    found = rows(frame.block)
    assert list(found) == ["body", "headers"]
    assert [len(entries) for entries in found["headers"]] == [8, 8, 0]
    wanted = columns.bits(("body", "expires_at"))
    frame = FrameBuilder(pieces[:1], blocks.__getitem__, wanted).next_frame()
    assert rows(frame.block) == {"body": [b"a", b"b"]}
