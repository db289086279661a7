"""Step functions in pages against a dict."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.step_function import PAGE_ROWS, Steps

VALUE = np.dtype([("a", "<i8"), ("b", "<i4")])


def dumped(steps: Steps, present: BitMap64) -> tuple[bytes, bytes]:
    """The keys and the values, as a snapshot has them."""
    keys, values = steps.dump(present)
    return bytes(keys), bytes(values)


@settings(max_examples=60)
@given(
    stretches=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), max_size=200),
    data=st.data(),
)
def test_steps_find_what_a_dict_finds(stretches, data) -> None:
    """C16: steps find what a dict finds after any removal, and dump in one form."""
    steps, expected, key = Steps(VALUE), {}, 5
    together = data.draw(st.integers(1, 40))
    for begin in range(0, len(stretches), together):
        rows = []
        for count, value in stretches[begin : begin + together]:
            if rows and rows[-1][2] == (value, -value):
                continue
            rows.append((key, count, (value, -value)))
            expected |= {key + i: (value, -value) for i in range(count)}
            key += count + value
        if len(rows) == 1:
            steps.append(*rows[0])
        else:
            keys, counts, values = zip(*rows, strict=True)
            steps.extend(np.array(keys), np.array(counts), np.array(list(values), VALUE))
    for _ in range(3):
        keys = sorted(expected)
        gone = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
        expected = {key: value for key, value in expected.items() if key not in gone}
        present = BitMap64(expected)
        steps.remove(BitMap64(gone), present)
        values = steps.at(bitmaps.array(present))
        assert [value.item() for value in values] == [expected[key] for key in sorted(expected)]
        again = Steps.load(VALUE, *dumped(steps, present), present)
        assert dumped(again, present) == dumped(steps, present)
        for first, last in zip(sorted(expected), sorted(expected)[4:], strict=False):
            constant = steps.constant(first, last)
            assert constant in (None, expected[first])
            assert constant is None or expected[last] == constant
        if data.draw(st.booleans()):
            steps = again


def test_a_million_keys_in_one_stretch_are_one_row() -> None:
    """C16: a million keys in one stretch are one row, although appended in parts."""
    steps = Steps(VALUE)
    for first in range(0, 1_000_000, 10_000):
        steps.append(first, 10_000, (7, 7))
    assert len(bytes(steps.dump(BitMap64(range(1_000_000))).keys)) == 8


def test_steps_of_many_pages() -> None:
    """C16: pages are filled, packed and dropped one by one."""
    steps, count = Steps(VALUE), 5 * PAGE_ROWS
    values = np.zeros(count, VALUE)
    values["a"] = np.arange(count)
    for key in range(700):
        steps.append(key, 1, (key, 0))
    for begin, end in ((699, 900), (900, 901), (901, 4 * PAGE_ROWS), (4 * PAGE_ROWS, count)):
        ones = np.ones(end - begin, np.int64)
        ones[0] = begin > 699
        steps.extend(np.arange(begin, end), ones, values[begin:end])
    survivors = BitMap64(range(3, count - 2 * PAGE_ROWS, 50))
    gone = BitMap64(range(count)) - survivors
    steps.remove(gone, survivors)
    assert steps.at(bitmaps.array(survivors))["a"].tolist() == list(survivors)
    assert steps.constant(3, 53) is None
    steps.append(count, 2, (1, 1))
    assert steps.at(np.array([3, count + 1]))["a"].tolist() == [3, 1]
    steps.remove(survivors, BitMap64((count, count + 1)))
    assert steps.at(np.array([count]))["a"].tolist() == [1]
    assert len(steps.at(np.empty(0, np.int64))) == 0


def test_a_dump_is_of_its_instant() -> None:
    """I2, I5: a dump lacks steps that are appended, and keeps those removed, before it is read."""
    steps, present = Steps(VALUE), BitMap64(range(3 * PAGE_ROWS))
    for key in present:
        steps.append(key, 1, (key // 2, 0))
    expected, late = dumped(steps, present), steps.dump(present)
    gone = BitMap64(range(0, 2 * PAGE_ROWS, 3)) | BitMap64(range(PAGE_ROWS, 2 * PAGE_ROWS))
    present -= gone
    steps.remove(gone, present)
    steps.append(3 * PAGE_ROWS, 4, (1, 1))
    assert (bytes(late.keys), bytes(late.values)) == expected
    assert dumped(steps, present) != expected
