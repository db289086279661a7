"""Messages that the local broker cannot take, and the numbering of the others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq import limits
from ackq.wire.columns import HEADERS
from ackq_link.adapter import Deliveries
from ackq_link.edge import Proof
from ackq_link.set_aside import SetAside, Settlements, unfit


@given(st.sets(st.integers(1, 30)), st.data())
def test_numbers_have_no_gap(aside, data):
    """L29: numbers of stored messages are consecutive, and map back to their tags."""
    numbering = SetAside()
    for tag in sorted(aside):
        numbering.add(tag)
    kept = [tag for tag in range(1, 31) if tag not in aside]
    assert [numbering.number(tag) for tag in kept] == list(range(1, len(kept) + 1))
    if kept:
        first = data.draw(st.integers(1, len(kept)))
        last = data.draw(st.integers(first, len(kept)))
        found = [tag for begin, end in numbering.tags(first, last) for tag in range(begin, end + 1)]
        assert found == kept[first - 1 : last]


@given(st.lists(st.booleans(), max_size=20))
def test_a_rejection_is_no_permit(own):
    """L10, L29: a proof counts permitted settlements only, and names the last of them."""
    settlements, numbers = Settlements(), [0]
    for number, aside in zip(range(40, 0, -2), own, strict=False):
        if aside:
            settlements.other()
        else:
            settlements.permitted(number, number)
            numbers.append(number)
    for count in range(len(own) + 1):
        proven = own[:count].count(False)
        assert settlements.proof(count) == Proof(proven, numbers[proven])


def test_a_proof_within_a_range():
    """L10: within a range the lowest number is settled first."""
    settlements = Settlements()
    settlements.permitted(4, 6)
    settlements.permitted(1, 2)
    assert [settlements.proof(count).number for count in range(6)] == [0, 4, 5, 6, 1, 2]


def test_the_parts_between():
    rows = pa.record_batch({"body": pa.array([b"a", b"b", b"c", b"d"])})
    numbering = SetAside()
    lasting = pa.record_batch({"body": pa.array([b"A", b"B", b"C", b"D"])})
    flags, counts = [False, True, False, True], [0, 1, 2, 3]
    taken = Deliveries(rows, 1, flags, 4, counts, lasting=lasting)
    one, two = numbering.parts(taken, {1: "large", 3: "large"})
    assert (one.first_tag, two.first_tag) == (1, 2)
    assert (one.rows["body"].to_pylist(), two.rows["body"].to_pylist()) == ([b"a"], [b"c"])
    assert two.lasting["body"].to_pylist() == [b"C"]
    assert (one.redelivered, one.delivery_counts) == ([False], [0])
    assert (two.redelivered, two.delivery_counts) == ([False], [2])
    (rest,) = numbering.parts(Deliveries(rows, 5, [False] * 4, 4), {})
    assert (rest.first_tag, rest.last_tag) == (3, 6)


LARGE = b"x" * limits.MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"body": [LARGE, LARGE[1000:]]}, [0]),
        ({"headers": [[], [("h", "x" * limits.MAX_HEADER_BYTES)]]}, [1]),
        ({"headers": [[], [("h", "x" * (limits.MAX_HEADER_BYTES - 1))]]}, []),
    ],
)
def test_what_the_edge_cannot_take(columns, found):
    """I6: messages above the local broker's bounds are set aside."""
    arrays = {"body": pa.array([b"", b""])} | {
        name: pa.array(values, HEADERS if name == "headers" else pa.binary())
        for name, values in columns.items()
    }
    assert list(unfit(pa.RecordBatch.from_pydict(arrays))) == found
