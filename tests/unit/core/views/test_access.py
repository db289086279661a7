"""What a permission depends on, read from the state."""

from ackq_broker.core import commands as c
from tests.unit.core.harness import ALICE, Harness


def test_the_sessions_of_a_name_and_an_incarnation(harness: Harness) -> None:
    """A2: both count, each once; with the queues that are read and those of what can be fetched."""
    harness.declare_filled("q", 2)
    lease = harness.lease("q").reply
    (found,) = harness.core.session_access("s", lease.incarnation)
    assert found == ("s", lease.incarnation, lease.epoch, ALICE.token, ("q",), "")
    assert harness.core.session_access("", lease.incarnation) == [found]
    assert harness.core.session_access("s", "unknown") == [found]
    assert harness.core.session_access("", "") == []
    assert harness.core.session_access("t", "unknown") == []


def test_the_queues_of_a_pattern(harness: Harness) -> None:
    """A2, S10: as a session finds them."""
    for name in ("orders", "other", "o"):
        harness.declare(name)
    assert harness.core.queues_like("o?*") == ["orders", "other"]
    assert harness.core.queues_like("x" * 300) == []
    assert list(harness.core.queue_names()) == ["orders", "other", "o"]


def test_writers_and_stages(harness: Harness) -> None:
    """A2, A5: where a writer wrote last, and what its stages hold."""
    assert harness.core.committed_target("w") == ""
    harness.do(c.CommitBatch("w", 0, "r", "", (), False, "queue/q", False))
    assert harness.core.committed_target("w") == "queue/q"
    harness.do(c.OpenStage(b"1" * 16, "w", 1, "r", "", False, False))
    assert harness.core.staged_bytes([b"1" * 16, b"2" * 16]) == {b"1" * 16: 0}
