"""State that permissions depend on."""

from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE


def test_the_sessions_of_a_name_and_an_incarnation(harness):
    """A2: sessions by name and by incarnation, each once; with the queues they read or hold."""
    harness.declare_filled("q", 2)
    lease = harness.lease("q").reply
    found = ("s", lease.incarnation, lease.epoch, ALICE.token, ("q",), "")
    for name, incarnation in (("s", lease.incarnation), ("", lease.incarnation), ("s", "unknown")):
        assert views.session_access(harness.core.state, name, incarnation) == [found]
    for name, incarnation in (("", ""), ("t", "unknown")):
        assert views.session_access(harness.core.state, name, incarnation) == []


def test_the_queues_of_a_pattern(harness):
    """A2, S10: queues are found as a session finds them."""
    harness.declare("orders", "other", "o")
    assert views.queues_like(harness.core.state, "o?*") == ["orders", "other"]
    assert views.queues_like(harness.core.state, "x" * 300) == []
    assert list(views.queue_names(harness.core.state)) == ["orders", "other", "o"]


def test_writers_and_stages(harness):
    """A2, A5: the target that a writer wrote last, and the bytes of its stages."""
    assert views.committed_target(harness.core.state, "w") == ""
    harness.do(c.CommitBatch("w", 0, "r", "", (), False, "queue/q", False))
    assert views.committed_target(harness.core.state, "w") == "queue/q"
    harness.do(c.OpenStage(b"1" * 16, "w", 1, "r", "", False, False))
    assert views.staged_bytes(harness.core.state, [b"1" * 16, b"2" * 16]) == {b"1" * 16: 0}
