"""Topic matching against a plain recursive definition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq_broker.core.state.exchange import Exchange


def matches(pattern: list[str], words: list[str]) -> bool:
    """The definition: `*` is one word, `#` any number."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6).map(".".join)


@settings(max_examples=300)
@given(bound=st.lists(patterns, max_size=6), key=keys)
def test_topics_match_their_definition(bound: list[str], key: str) -> None:
    """Q2: words between dots, `*` one word, `#` any number of words; an empty key has none."""
    exchange = Exchange("x", "topic", durable=True)
    for queue_id, pattern in enumerate(bound):
        exchange.bind(pattern, queue_id)
    expected = tuple(
        queue_id
        for queue_id, pattern in enumerate(bound)
        if matches(pattern.split("."), key.split(".") if key else [])
    )
    assert exchange.targets(key) == expected


def test_many_hashes_stay_cheap() -> None:
    """I6: a hostile binding key cannot make a match exponential."""
    exchange = Exchange("x", "topic", durable=True)
    exchange.bind(".".join(["#"] * 60 + ["end"]), 1)
    assert exchange.targets(".".join("a" * 120)) == ()


def test_remembered_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: a stream of distinct keys does not grow the broker."""
    monkeypatch.setattr("ackq_broker.core.state.exchange._CACHED_KEYS", 2)
    exchange = Exchange("x", "direct", durable=True)
    exchange.bind("k", 1)
    for key in ("k", "a", "b", "c", "k"):
        assert exchange.targets(key) == ((1,) if key == "k" else ())
    assert len(exchange._cache) <= 2
