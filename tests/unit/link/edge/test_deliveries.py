"""Deliveries encoded as frames: rules L2, L4, L7, L13."""

import pytest

from ackq.client.ranges import Range
from ackq.errors import ClosedError, InvalidArgumentError
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame
from ackq_link.edge.deliveries import Columns, Proof, StoredDeliveries, StoredRun, parts
from tests.fakes.blocks import batch


def header_of(part):
    header, _ = frame.split(part.encoded(1, 1, Proof()))
    return pb.LinkHeader.FromString(bytes(header)).deliveries


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
    one, two, three = (StoredRun(number, 1, number, False, False) for number in (7, 8, 9))
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
    beside = Columns(bytes(16), bytes(8), None, None)._replace(**{name: value})
    with pytest.raises(InvalidArgumentError, match="for 1 rows"):
        list(parts(1, batch(body=[b"a"]), beside, "q", lambda: print))
