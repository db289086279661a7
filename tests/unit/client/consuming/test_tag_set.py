"""`TagSet` compared with Python's own set (C16)."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from ackq.client.consuming.tag_set import TagSet

TAG = st.integers(1, 5000)
RANGE = st.tuples(TAG, st.integers(0, 3000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
KINDS = ["add", "insert", "remove", "discard", "up_to"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), RANGE), max_size=30)


def members(runs):
    return [tag for first, last in runs for tag in range(first, last + 1)]


@given(STEPS, RANGE)
def test_it_is_a_set(steps, asked):
    """C16: `TagSet` answers as a set does, whatever is added and removed."""
    tags, model = TagSet(), set()
    for step, (first, last) in steps:
        span = set(range(first, last + 1))
        if step == "add":
            tags.add(first, last)
            model |= span
        elif step == "insert":
            tags.insert(first)
            model.add(first)
        elif step == "discard":
            assert tags.discard(first) == (first in model)
            model.discard(first)
        elif step == "remove":
            assert tags.remove(first, last) == len(model & span)
            model -= span
        else:
            assert members(tags.up_to(last)) == sorted(tag for tag in model if tag <= last)
        assert len(tags) == len(model)
        assert tags.lowest == min(model, default=None)
    first, last = asked
    assert tags.count(first, last) == len(model & set(range(first, last + 1)))
    assert [tag in tags for tag in asked] == [tag in model for tag in asked]


def test_a_million_tags_take_little_memory():
    """C16: a million tags with every other one settled take under half a byte per tag."""
    tags = TagSet()
    tags.add(1, 1_000_000)
    for tag in range(2, 1_000_001, 2):
        tags.remove(tag, tag)
    assert len(tags) == 500_000
    words = tags._words
    assert sys.getsizeof(words) + sum(map(sys.getsizeof, words.values())) < 500_000
