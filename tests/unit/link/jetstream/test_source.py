"""What a link learns of a stream and its consumer, and the origin keys of its messages."""

import pytest

from ackq_link.jetstream.source import limits_of, refusal, waits

GOOD = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1000}
S = 10**9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"durable_name": ""}, "not durable"),
        ({"headers_only": True}, "headers only"),
        ({"deliver_subject": "x"}, "push consumer"),
        ({"ack_policy": "all"}, "ack policy 'all'"),
        ({"priority_groups": ["a"]}, "priority groups"),
        ({"max_ack_pending": 999}, "--max-pending=1000"),
        ({"backoff": [S, 90_000 * S]}, "--wait=30s"),
    ],
)
def test_a_consumer_that_is_refused(change, words):
    """L14, L31: the reason and the command that helps."""
    assert words in refusal("s/c", {**GOOD, **change}, 1000)
    assert refusal("s/c", {**GOOD, "max_ack_pending": -1}, 1000) == ""


def test_limits():
    """L14: what can be asked is learnt, what cannot is a note."""
    found = limits_of("s", "c", {"retention": "limits", "max_age": 60 * S}, {"max_deliver": 5})
    assert (found.delivery_limit, found.dead_letters, found.consumer_timeout_s) == (4, False, 0)
    assert "60 s" in found.warnings[0]
    assert any("sync_interval" in each for each in found.notes)
    assert limits_of("s", "c", {}, {"max_deliver": 1}).delivery_limit == 1
    assert limits_of("s", "c", {}, {}).delivery_limit == 0
    full = limits_of("s", "c", {"max_msgs": 5, "discard": "old", "storage": "memory"}, {})
    assert len(full.warnings) == 2
    assert waits({"ack_wait": 30 * S, "backoff": [S, 60 * S]}) == (1, 60)
    assert waits({}) == (30, 30)
