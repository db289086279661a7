"""Lists of queues, and the details of one: what refers to it, its dead letters (Q5, M5)."""

import pytest

from ackq.errors import InvalidArgumentError, QueueNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.core.commands import BatchKey, DeadLetterGroup
from tests.unit.core.harness import Harness


def test_what_refers_to_a_queue(harness):
    """M5, I6: bindings, staged batches, sources of dead letters, up to a limit, and counted."""
    harness.declare("q")
    harness.declare("a", "b", dead_letter_queue="q")
    harness.bind("x", "topic", q="k.#")
    harness.bind("w", "fanout", q="")
    harness.stage("w1", 3, ["q", "q"], name="one")
    harness.stage("w2", 0, ["q"], name="two")
    use = views.queue_use(harness.core.state, "q", 10)
    assert use.bindings == (("w", ""), ("x", "k.#"))
    assert use.batches == ((BatchKey("w1", 3), 2), (BatchKey("w2", 0), 1))
    assert use.sources == ("a", "b")
    use = views.queue_use(harness.core.state, "q", 1)
    assert (use.bindings, use.batches) == ((("w", ""),), ((BatchKey("w1", 3), 2),))
    assert len(use.sources) == 1
    assert (use.binding_count, use.batch_count, use.source_count) == (2, 2, 2)


def test_dead_letters_by_what_they_have_in_common(harness):
    """C13: groups by queue, cause and reason; settled dead letters are left out."""
    harness.declare("dead")
    harness.declare_filled("a", 5, dead_letter_queue="dead")
    harness.declare_filled("b", 2, dead_letter_queue="dead", delivery_limit=1)
    harness.consume("a", Outcome.REJECTED, 3, reason="wrong")
    harness.consume("a", Outcome.REJECTED, 1, reason="late")
    for _ in range(2):
        harness.consume("b", Outcome.FAILED, reason="timeout")
    harness.publish_to("dead", 1)
    found = sorted(views.dead_letters(harness.core.state, "dead"))
    assert found == [
        DeadLetterGroup("a", "rejected", "late", 1),
        DeadLetterGroup("a", "rejected", "wrong", 3),
        DeadLetterGroup("b", "delivery_limit", "timeout", 2),
    ]
    info = harness.info("dead")
    assert (info.ready, info.dead_letters_held) == (7, 6)
    harness.consume("dead", Outcome.ACCEPTED, 3)
    assert harness.info("dead").dead_letters_held == 3


def test_dead_letters_that_go_between_two_looks(harness):
    """M5: reading many dead letters can continue after changes."""
    harness.declare("dead")
    harness.declare_filled("a", 2, dead_letter_queue="dead")
    for reason in ("one", "two"):
        harness.consume("a", Outcome.REJECTED, 1, reason=reason)
    groups = views.dead_letters(harness.core.state, "dead")
    assert next(groups).reason == "one"
    harness.consume("dead", Outcome.ACCEPTED)
    assert list(groups) == []


@pytest.mark.parametrize("view", [views.dead_letters, views.queue_use, views.keepers])
def test_of_a_queue_that_is_not_there(harness, view):
    """M5, Q9: a missing queue is refused at the call."""
    limit = [1] if view is views.queue_use else []
    with pytest.raises(QueueNotFoundError):
        view(harness.core.state, "nothing", *limit)


@pytest.fixture
def core(harness: Harness):
    """Queues with no message, and with a ready, an unacked and a delayed message."""
    harness.declare("orders.eu", "orders.us", "x[1]", "unacked", "delayed", "empty")
    harness.publish(["orders.eu", "unacked", "delayed"])
    harness.deliver("y", "unacked")
    harness.consume("delayed", Outcome.FAILED, delay_ms=60_000)
    return harness.core


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["delayed", "empty", "orders.eu", "orders.us", "unacked", "x[1]"]),
        ({"pattern": "orders.*"}, ["orders.eu", "orders.us"]),
        ({"pattern": "orders.?s"}, ["orders.us"]),
        ({"pattern": "x[1]"}, ["x[1]"]),
        ({"pattern": "order"}, []),
        ({"not_empty": True}, ["delayed", "orders.eu", "unacked"]),
        ({"limit": 2}, ["delayed", "empty"]),
        ({"limit": 2, "after": "empty"}, ["orders.eu", "orders.us"]),
        ({"limit": 2, "not_empty": True, "after": "delayed"}, ["orders.eu", "unacked"]),
        ({"after": "x[1]"}, []),
        ({"after": "f"}, ["orders.eu", "orders.us", "unacked", "x[1]"]),
    ],
)
def test_names_by_pattern_and_page(core, chosen, names) -> None:
    """Q5: names ascend; a page begins after the last name of the previous page."""
    assert views.matching_names(core.state, **chosen) == names


def test_a_pattern_has_a_bound(core) -> None:
    """I6: a pattern has the same bound as a name."""
    with pytest.raises(InvalidArgumentError, match="pattern"):
        views.matching_names(core.state, "*" * 256)


def test_what_is_gone_meanwhile_is_left_out(harness: Harness) -> None:
    """Q5: a list is made in slices, and a queue deleted between two of them is left out."""
    harness.declare("a", "b", "c")
    names = views.matching_names(harness.core.state)
    harness.do(c.DeleteQueue("b"))
    assert [info.queue for info in views.queue_infos(harness.core.state, names)] == ["a", "c"]
