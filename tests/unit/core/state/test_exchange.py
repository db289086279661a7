"""Topic matching against a plain recursive definition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core.state.exchange import Exchange


@pytest.fixture
def exchange() -> Exchange:
    """A topic exchange without bindings."""
    return Exchange("x", "topic", durable=True)


def queue_ids(exchange: Exchange, key: str) -> tuple[int, ...]:
    """The queues that a key is routed to."""
    return tuple(sorted({queue_id for group in exchange.groups(key) for queue_id in group}))


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
    words = key.split(".") if key else []
    matched = [at for at, pattern in enumerate(bound) if matches(pattern.split("."), words)]
    assert queue_ids(exchange, key) == tuple(matched)


def test_a_changed_binding_counts_at_once(exchange: Exchange) -> None:
    """Q2: keys are matched again after a bind or an unbind, and unused words are removed."""
    for pattern, queue_id in (("a.#", 1), ("a.b", 2), ("a.b", 3)):
        exchange.bind(pattern, queue_id)
        assert queue_id in queue_ids(exchange, "a.b")
    for pattern, queue_id in (("a.b", 2), ("a.#", 1), ("a.b", 3)):
        exchange.unbind(pattern, queue_id)
        assert queue_id not in queue_ids(exchange, "a.b")
    exchange.bind("a", 4)
    assert (queue_ids(exchange, "a"), queue_ids(exchange, "a.b")) == ((4,), ())


@pytest.mark.parametrize("words", [1, limits.MAX_TOPIC_WORDS])
def test_hostile_bindings_take_a_bounded_number_of_steps(exchange: Exchange, words: int) -> None:
    """I6: a match ends at its bound of steps, and is not tried again for the same key."""
    for number in range(2_000):
        exchange.bind(".".join(["#", *f"{number:011b}", "#", "end"]), number)
    key = ".".join(f"{1:021b}"[-words:])
    assert exchange.match(key) <= 3 * limits.MAX_TOPIC_STEPS
    assert exchange.match(key) == 1
    if words == 1:
        assert exchange.groups(key) == ()


def test_a_match_over_its_steps_is_refused(exchange, monkeypatch) -> None:
    """I6: the refusal names the exchange and the remedy; other keys are still routed."""
    monkeypatch.setattr(limits, "MAX_TOPIC_STEPS", 5)
    for number in range(10):
        exchange.bind(f"#.a.#.{number}", number)
    exchange.bind("b", 77)
    with pytest.raises(LimitError, match=r"more than 5 steps .* exchange 'x' .* Remove some"):
        exchange.groups("a.a.a.a")
    assert queue_ids(exchange, "b") == (77,)


def test_a_topic_has_21_words_at_most(exchange: Exchange) -> None:
    """Q2, I6: a longer key is refused, by a topic alone; an older, longer binding still matches."""
    exchange.bind(".".join(["#"] * 60 + ["end"]), 1)
    assert queue_ids(exchange, ".".join(["a"] * 20 + ["end"])) == (1,)
    with pytest.raises(LimitError, match="has 22 words; a topic exchange takes 21"):
        exchange.groups(".".join(["a"] * 21 + ["end"]))
    direct, key = Exchange("x", "direct", durable=True), ".".join("a" * 40)
    direct.bind(key, 1)
    assert queue_ids(direct, key) == (1,)
