"""Bitmap helpers."""

from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps


def test_the_last_label_of_a_value_wins() -> None:
    """S6: labels that keep no value are left out, and the given bitmaps are not changed."""
    labels = ("a", (1, 2, 3, 5)), ("b", (2,)), ("c", ()), ("d", (5,)), ("a", (4,)), ("b", (5,))
    given = [(label, BitMap64(values)) for label, values in labels]
    before = [(label, values.copy()) for label, values in given]
    assert bitmaps.last_wins(given) == {"a": BitMap64((1, 3, 4)), "b": BitMap64((2, 5))}
    assert given == before
