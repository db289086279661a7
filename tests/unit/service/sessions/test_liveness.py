"""Liveness of session holders, over an injected clock."""

import pytest

from ackq import limits
from ackq_broker.engine.clock import Uptime
from ackq_broker.service.sessions.liveness import Liveness

HEARTBEAT_S = limits.HEARTBEAT_MS / 1000
GRACE_S = limits.HOLDER_CUT_GRACE_MS / 1000


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def liveness(clock):
    return Liveness(clock)


def test_nobody_is_not_live(liveness):
    """S3: an incarnation that no reader attached to has no live holder."""
    assert liveness.live("i") is False


def test_attached_without_stream_is_live_for_a_heartbeat(liveness, clock):
    """S3: a holder has one heartbeat to open its stream after an attach or a broker start."""
    liveness.attached("i", b"a")
    clock.now += HEARTBEAT_S - 0.001
    assert liveness.live("i") is True
    clock.now += 0.001
    assert liveness.live("i") is False


def test_heard_on_an_open_stream_is_live(liveness, clock):
    """S3: a holder is live while its stream is open and was heard within the heartbeat."""
    stream = liveness.opened("i", b"a")
    for _ in range(3):
        clock.now += HEARTBEAT_S - 1
        assert liveness.live("i") is True
        liveness.heard(stream)


def test_silent_stream_is_dead_after_a_heartbeat(liveness, clock):
    """S3: a stream that is open but silent keeps its holder alive for one heartbeat only."""
    liveness.opened("i", b"a")
    clock.now += HEARTBEAT_S
    assert liveness.live("i") is False


def test_cut_stream_is_live_for_the_grace_only(liveness, clock):
    """S3: a holder whose stream was cut is live for 2 s, however recently it was heard."""
    stream = liveness.opened("i", b"a")
    liveness.heard(stream)
    liveness.disconnected(stream)
    clock.now += GRACE_S - 0.001
    assert liveness.live("i") is True
    clock.now += 0.001
    assert liveness.live("i") is False


def test_grace_counts_from_the_cut(liveness, clock):
    """S3: the grace after a cut is whole, even if the holder was silent for nearly a heartbeat."""
    stream = liveness.opened("i", b"a")
    clock.now += HEARTBEAT_S - 0.5
    liveness.disconnected(stream)
    clock.now += 1
    assert liveness.live("i") is True


def test_reconnected_stream_outlives_the_cut_of_the_first(liveness, clock):
    """S3: the cut of an old stream does not count while the same holder has a newer one."""
    first = liveness.opened("i", b"a")
    second = liveness.opened("i", b"a")
    liveness.disconnected(first)
    clock.now += GRACE_S
    assert liveness.live("i") is True
    liveness.disconnected(second)
    clock.now += GRACE_S
    assert liveness.live("i") is False


def test_new_call_of_a_cut_holder_is_a_sign_of_life(liveness, clock):
    """S3: a call of a holder whose stream was cut gives it a heartbeat to open a new stream."""
    liveness.disconnected(liveness.opened("i", b"a"))
    liveness.attached("i", b"a")
    clock.now += GRACE_S
    assert liveness.live("i") is True


def test_cut_of_a_replaced_holder_says_nothing_of_the_new_one(liveness, clock):
    """S3: the streams of a fenced holder do not count for the holder that replaced it."""
    old = liveness.opened("i", b"a")
    liveness.attached("i", b"b")
    liveness.disconnected(old)
    clock.now += GRACE_S
    assert liveness.live("i") is True


def test_connected_is_live_by_its_stream(liveness, clock):
    """S9: only an open stream counts as connected, not the grace after an attach or a cut."""
    assert liveness.connected("i") is False
    liveness.attached("i", b"a")
    assert (liveness.live("i"), liveness.connected("i")) == (True, False)
    stream = liveness.opened("i", b"a")
    assert liveness.connected("i") is True
    clock.now += HEARTBEAT_S
    assert liveness.connected("i") is False
    liveness.heard(stream)
    liveness.disconnected(stream)
    assert (liveness.live("i"), liveness.connected("i")) == (True, False)


def test_forget(liveness):
    """S9: an ended incarnation has no holder, and only the kept ones are remembered."""
    for name in ("i", "j", "k"):
        liveness.attached(name, b"a")
    liveness.forget("i")
    liveness.keep({"i", "k"})
    assert [liveness.live(name) for name in ("i", "j", "k")] == [False, False, True]


def test_away_counts_from_when_the_holder_stopped_to_count_as_live(liveness, clock):
    """S5: a cut holder is absent from the end of its grace, a silent one after a heartbeat."""
    cut = liveness.opened("cut", b"a")
    liveness.opened("silent", b"a")
    liveness.disconnected(cut)
    clock.now += HEARTBEAT_S + 1
    assert liveness.away_s("silent") == pytest.approx(1)
    assert liveness.away_s("cut") == pytest.approx(HEARTBEAT_S + 1 - GRACE_S)
    liveness.attached("silent", b"a")
    assert liveness.away_s("silent") < 0


def test_a_fenced_holder_is_away_at_once(liveness, clock):
    """S8: a fenced holder is absent at once, and heartbeats of its old stream do not count."""
    stream = liveness.opened("i", b"a")
    liveness.fenced("i")
    assert (liveness.live("i"), liveness.away_s("i")) == (False, 0)
    liveness.heard(stream)
    clock.now += 3
    assert liveness.away_s("i") == 3
    liveness.attached("i", b"a")
    assert liveness.live("i") is True


def test_a_stopped_broker_keeps_its_holders(clock):
    """S3, S5: a stopped broker process keeps its holders, as its uptime clock stops with it."""
    liveness = Liveness(Uptime(clock))
    liveness.opened("i", b"a")
    clock.now += 3600
    assert liveness.live("i") is True
