"""Patterns of names."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.security.name_pattern import NamePattern


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("orders", ["orders"]),
        ("orders|billing", ["orders", "billing"]),
        (r"orders\..*", ["orders.eu", "orders.a\nb"]),
        ("(?i)ORDERS", ["orders"]),
        ("本", ["本"]),
        (".*", ["orders", "orders.eu", "orders.a\nb", "my-orders", "billing", "本", ""]),
        ("", []),
    ],
)
def test_a_whole_name_matches(text, names):
    """A2: a pattern matches at both ends, over line ends; an empty pattern matches nothing."""
    asked = ["orders", "orders.eu", "orders.a\nb", "my-orders", "billing", "本", ""]
    found = NamePattern(text).matches_each(asked)
    assert [name for name, matches in zip(asked, found, strict=True) if matches] == names
    assert NamePattern(text).matches_each([]) == []


@pytest.mark.parametrize(
    "text",
    ["(", "a)|(b", r"\Qa", "a{2000}", "((a{50}){50}){50}", r"(a)\1", "(?=a)a", "(?<!a)b", "a\\"],
)
def test_what_is_no_pattern(text):
    """A2: an invalid pattern, or one that needs backtracking, is refused with the cause."""
    with pytest.raises(InvalidArgumentError, match="is not a regular expression of RE2"):
        NamePattern(text)


def test_equal_patterns():
    """A1: equal patterns compare equal, so an unchanged user keeps its streams."""
    assert NamePattern("a+") == NamePattern("a+") != NamePattern("a*")
