"""Deliveries encoded as frames: rules L2, L4, L7, L13."""

import pyarrow as pa
import pytest

from ackq import limits
from ackq.client.ranges import Range
from ackq.errors import ClosedError, InvalidArgumentError, MessageTooLargeError, SchemaError
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame
from ackq_link.edge.deliveries import Columns, Proof, StoredDeliveries, StoredRun, parts
from tests.fakes.blocks import batch


def made(rows, count, *, first=1, **changes):
    keys = b"".join(b"%016d" % each for each in range(count))
    checks = b"".join(b"%08d" % each for each in range(count))
    beside = Columns(keys, checks, None, None)._replace(**changes)
    return list(parts(first, rows, beside, "q", lambda: print))


def header_of(part):
    header, _ = frame.split(part.encoded(1, 1, Proof()))
    return pb.LinkHeader.FromString(bytes(header)).deliveries


def test_many_rows_are_several_frames():
    """L5: each frame has its own keys and flags, and numbers run on without a gap."""
    count = limits.FRAME_TARGET_ROWS + 3
    flags = [False] * (count - 1) + [True]
    found = made(batch(body=[b""] * count), count, first=2, redelivered=flags)
    assert [part.numbers for part in found] == [
        Range(2, limits.FRAME_TARGET_ROWS + 1),
        Range(limits.FRAME_TARGET_ROWS + 2, count + 1),
    ]
    headers = [header_of(part) for part in found]
    assert [each.redelivered for each in headers] == [b"", b"\x04"]
    assert headers[1].keys.startswith(b"%016d" % limits.FRAME_TARGET_ROWS)
    assert [len(each.checks) for each in headers] == [8 * part.rows for part in found]


def test_a_part_is_split():
    """L17, L20: the first rows, with their keys, go to a queue with a bound; the rest waits."""
    results = []
    beside = Columns(bytes(range(48)), bytes(range(24)), [0, 1, 1], None, [0, 0, 1])
    (whole,) = parts(7, batch(body=[b"a", b"b", b"c"]), beside, "q", lambda: results.append)
    first, rest = whole.split(1)
    assert (first.numbers, rest.numbers) == (Range(7, 7), Range(8, 9))
    assert header_of(first).keys == bytes(range(16))
    assert header_of(rest).keys == bytes(range(16, 48))
    assert header_of(rest).checks == bytes(range(8, 24))
    assert (header_of(rest).content, header_of(rest).at_once) == (b"\x03", b"\x02")
    one, two, three = (
        StoredRun(number, 1, number, matched=False, permitted=False) for number in (7, 8, 9)
    )
    first.complete(StoredDeliveries((one,)))
    middle, last = rest.split(1)
    assert last.batch.column("body").to_pylist() == [b"c"]
    last.complete(StoredDeliveries((three,)))
    assert results == []
    middle.complete(StoredDeliveries((two,)))
    assert [sorted(result.runs) for result in results] == [[one, two, three]]
    # L17: where one part fails the whole frame fails, once.
    first, rest = whole.split(1)
    error = ClosedError("Another subscription began.")
    first.complete(StoredDeliveries(()))
    rest.complete(error)
    assert results[1:] == [error]


@pytest.mark.parametrize(
    ("name", "value"),
    [("keys", b"k" * 17), ("checks", b"c" * 7), ("content", [True, False]), ("redelivered", [])],
)
def test_one_of_each_for_every_row(name, value):
    """L2, L4: a wrong number of keys or checks is refused, as rows would get others' keys."""
    with pytest.raises(InvalidArgumentError, match="for 1 rows"):
        made(batch(body=[b"a"]), 1, **{name: value})


def test_what_a_link_does_not_store():
    """L13: rows with a TTL, rows over a limit and empty batches are refused."""
    rows = batch(body=[b"a"]).append_column("ttl_ms", pa.array([5], pa.int64()))
    with pytest.raises(SchemaError, match="ttl_ms"):
        made(rows, 1)
    with pytest.raises(InvalidArgumentError, match="at least one"):
        made(batch(body=[]), 0)
    large = batch(body=[b"a", bytes(limits.MAX_MESSAGE_BYTES + 1)])
    with pytest.raises(MessageTooLargeError):
        made(large, 2)
