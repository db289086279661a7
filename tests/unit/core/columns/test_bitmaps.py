"""Bitmap helpers against sets."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from ackq_broker.core.columns import bitmaps
from tests.unit.core.memory import allocated

# Near container borders and short, so that runs and values often tie in size.
ranges = st.builds(
    lambda first, count: range(first, first + count),
    st.sampled_from([0, 5, 65_530, 196_608]).flatmap(lambda base: st.integers(base, base + 12)),
    st.sampled_from([1, 2, 3, 7, 9_000]),
)


# Two values in a row take the same room as a run; found by the state machine test.
@example(steps=[(range(1, 3), "add")], kind=BitMap64)
@settings(max_examples=150)
@given(
    steps=st.lists(st.tuples(ranges, st.sampled_from(["add", "listed", "remove", "reload"]))),
    kind=st.sampled_from([BitMap64, BitMap]),
)
def test_equal_bitmaps_have_equal_canonical_bytes(steps, kind) -> None:
    """I2: bitmaps of the same values have the same bytes in a snapshot, however they were made."""
    bitmap, values = kind(), set()
    for part, step in steps:
        if step == "reload":
            bitmap = kind.deserialize(bitmaps.canonical_hook(bitmap))
        elif step == "remove":
            bitmap -= kind(part)
            values -= set(part)
        else:
            bitmap |= kind(part) if step == "add" else kind(list(part))
            values |= set(part)
    expected = bitmaps.canonical_hook(kind(sorted(values)))
    assert bitmaps.canonical_hook(bitmap) == expected
    assert kind.deserialize(expected) == bitmap
    assert kind.deserialize(bitmaps.encode_hook(bitmap)) == bitmap


@settings(max_examples=100)
@given(values=st.sets(st.integers(0, 200), min_size=1), data=st.data())
def test_parts_of_a_bitmap(values: set[int], data: st.DataObject) -> None:
    """I5: sub-ranges of a bitmap by value and rank, and its runs, without walking its values."""
    bitmap, ordered = BitMap64(values), sorted(values)
    first, last = data.draw(st.integers(0, 220)), data.draw(st.integers(0, 2**63))
    assert list(bitmaps.between(bitmap, first, last)) == [v for v in ordered if first <= v <= last]
    count = data.draw(st.integers(0, len(ordered) + 1))
    assert list(bitmaps.lowest(bitmap, count)) == ordered[:count]
    after = data.draw(st.integers(0, len(ordered)))
    assert list(bitmaps.ranked(bitmap, after, len(ordered))) == ordered[after:]
    assert bitmaps.array(bitmap).tolist() == ordered
    firsts, counts = bitmaps.runs(bitmap)
    assert bitmaps.expanded(firsts, counts).tolist() == ordered
    assert set(bitmaps.of_runs(firsts, counts)) == values
    assert len(bitmaps.of_runs(firsts * 100, counts * 100)) >= 100 * len(firsts)


def test_other_types_are_left_to_msgspec() -> None:
    """I2: only bitmaps have encoding hooks."""
    for hook in (bitmaps.encode_hook, bitmaps.canonical_hook):
        with pytest.raises(NotImplementedError, match="object"):
            hook(object())
    with pytest.raises(NotImplementedError, match="object"):
        bitmaps.decode_hook(object, b"")


def test_the_last_label_of_a_value_wins() -> None:
    """S6: labels that keep no value are left out, and the given bitmaps are not changed."""
    labels = ("a", (1, 2, 3, 5)), ("b", (2,)), ("c", ()), ("d", (5,)), ("a", (4,)), ("b", (5,))
    given = [(label, BitMap64(values)) for label, values in labels]
    before = [(label, values.copy()) for label, values in given]
    assert bitmaps.last_wins(given) == {"a": BitMap64((1, 3, 4)), "b": BitMap64((2, 5))}
    assert given == before


@pytest.mark.parametrize("kind", [BitMap64, BitMap])
def test_what_is_not_found_leaks_nothing(kind: type[BitMap64]) -> None:
    """I6: a lookup beyond the highest value keeps no memory, in a broker that runs for months."""
    bitmap = kind([3, 70_000])
    found = [bitmaps.lowest_from(bitmap, first) for first in (0, 3, 4, 70_001)]
    assert found == [3, 3, 70_000, None]
    before = allocated()
    for _ in range(10_000):
        assert bitmaps.lowest_from(bitmap, 70_001) is None
        assert bitmaps.lowest_from(kind(), 0) is None
    assert allocated() - before < 100_000
