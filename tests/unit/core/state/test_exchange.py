"""Topic matching against a plain recursive definition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core.state.exchange import Exchange

patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6).map(".".join)


def bound_to(*bindings):
    """A topic exchange with a queue for each binding, from the id 0 on."""
    exchange = Exchange("x", "topic", durable=True)
    for queue_id, pattern in enumerate(bindings):
        exchange.bind(pattern, queue_id)
    return exchange


def queue_ids(exchange, key):
    """The queues that a key is routed to."""
    return sorted({queue_id for group in exchange.groups(key) for queue_id in group})


def matches(pattern, words):
    """The definition: `*` is one word, `#` any number."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


@settings(max_examples=300)
@given(bound=st.lists(patterns, max_size=6), key=keys)
def test_topics_match_their_definition(bound, key):
    """Q2: words between dots, `*` one word, `#` any number; a changed binding counts at once."""
    words = key.split(".") if key else []
    matched = [at for at, pattern in enumerate(bound) if matches(pattern.split("."), words)]
    exchange = bound_to(*bound)
    assert queue_ids(exchange, key) == matched
    for queue_id in matched[::2]:
        exchange.unbind(bound[queue_id], queue_id)
    exchange.bind("#", 99)
    assert queue_ids(exchange, key) == [*matched[1::2], 99]


def test_a_match_over_its_bounds_is_refused(monkeypatch):
    """Q2, I6: the refusal of too many steps or words names its remedy; others are still routed."""
    monkeypatch.setattr(limits, "MAX_TOPIC_STEPS", 5)
    exchange = bound_to(*(f"#.a.#.{number}" for number in range(10)), "b")
    with pytest.raises(LimitError, match=r"more than 5 steps .* exchange 'x' .* Remove some"):
        exchange.groups("a.a.a.a")
    with pytest.raises(LimitError, match="has 22 words; a topic exchange takes 21"):
        exchange.groups(".".join(["a"] * 22))
    assert queue_ids(exchange, "b") == [10]
