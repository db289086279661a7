"""Step functions in many pages."""

import numpy as np
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.step_function import PAGE_ROWS, Steps

VALUE = np.dtype([("a", "<i8"), ("b", "<i4")])


def dumped(steps, present):
    """The keys and the values, as a snapshot has them."""
    keys, values = steps.dump(present)
    return bytes(keys), bytes(values)


def test_steps_of_many_pages():
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


def test_a_dump_is_of_its_instant():
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
