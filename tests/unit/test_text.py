"""Foreign text made printable on one line."""

import pytest

from ackq.text import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"),
        ("Bücher 本 ✓", "Bücher 本 ✓"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31m\x00\x7f", r"\x1b[31m\x00\x7f"),
        ("\u2028\u202e\u200b", r"\u2028\u202e\u200b"),
        ("\U000e0001", r"\U000e0001"),
        ("\udcff", r"\udcff"),
        ("a\\nb", r"a\nb"),
    ],
)
def test_printable(text, expected):
    """A7: the text is one line, without terminal control characters."""
    assert printable(text) == expected
    assert printable(text).isprintable()
