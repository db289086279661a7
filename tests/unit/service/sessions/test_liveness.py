"""Liveness of session holders, over an injected clock."""

import pytest

from ackq import limits
from ackq_broker.service.sessions.liveness import Liveness

HEARTBEAT_S = limits.HEARTBEAT_MS / 1000
GRACE_S = limits.HOLDER_CUT_GRACE_MS / 1000
# The least time that a clock of these tests shows.
TICK_S = 0.001


def after(*events):
    """The liveness of incarnation `i` after what its holder did in turn; numbers are seconds.

    A cut is of the oldest stream, a heartbeat on the newest one.
    """
    now, streams = [1000.0], []
    liveness = Liveness(lambda: now[0])
    happens = {
        "attach": lambda: liveness.attached("i", b"a"),
        "another attaches": lambda: liveness.attached("i", b"b"),
        "open": lambda: streams.append(liveness.opened("i", b"a")),
        "beat": lambda: liveness.heard(streams[-1]),
        "cut": lambda: liveness.disconnected(streams.pop(0)),
        "fence": lambda: liveness.fenced("i"),
        "forget": lambda: liveness.forget("i"),
        "keep": lambda: liveness.keep({"i"}),
        "keep another": lambda: liveness.keep({"j"}),
    }
    for event in events:
        if event in happens:
            happens[event]()
        else:
            now[0] += event
    return liveness


BEATS = ("open", HEARTBEAT_S - 1, "beat", HEARTBEAT_S - 1, "beat", HEARTBEAT_S - 1)


@pytest.mark.parametrize(
    ("events", "live", "connected"),
    [
        ((), False, False),
        # A holder has one heartbeat to open its stream.
        (("attach", HEARTBEAT_S - TICK_S), True, False),
        (("attach", HEARTBEAT_S), False, False),
        # A stream counts while it is heard.
        (BEATS, True, True),
        (("open", HEARTBEAT_S), False, False),
        # A cut stream counts for the grace, whole, however recently it was heard.
        (("open", "beat", "cut", GRACE_S - TICK_S), True, False),
        (("open", "beat", "cut", GRACE_S), False, False),
        (("open", HEARTBEAT_S - 0.5, "cut", 1), True, False),
        # The cut of an old stream does not count while the same holder has a newer one.
        (("open", "open", "cut", GRACE_S), True, True),
        (("open", "open", "cut", "cut", GRACE_S), False, False),
        # A call of a cut holder gives it a heartbeat to open a new stream.
        (("open", "cut", "attach", GRACE_S), True, False),
        # The streams of a fenced holder do not count for the holder that replaced it.
        (("open", "another attaches", "cut", GRACE_S), True, False),
        (("open", "fence", "beat"), False, False),
        (("open", "fence", "attach"), True, False),
        # An ended incarnation has no holder, and only the kept ones are remembered (S9).
        (("attach", "forget"), False, False),
        (("attach", "keep another"), False, False),
        (("attach", "keep"), True, False),
    ],
)
def test_who_is_live(events, live, connected):
    """S3, S8, S9: a holder is live by its stream's heartbeats, else for a heartbeat or a grace.

    Only an open stream counts as connected.
    """
    found = after(*events)
    assert (found.live("i"), found.connected("i")) == (live, connected)


@pytest.mark.parametrize(
    ("events", "away_s"),
    [
        (("open", HEARTBEAT_S + 1), 1),
        (("open", "cut", HEARTBEAT_S + 1), HEARTBEAT_S + 1 - GRACE_S),
        (("open", HEARTBEAT_S + 1, "attach"), -HEARTBEAT_S),
        (("open", "fence"), 0),
        (("open", "fence", "beat", 3), 3),
    ],
)
def test_away_counts_from_when_the_holder_stopped_to_count_as_live(events, away_s):
    """S5, S8: a cut holder is absent from the end of its grace, a silent one after a heartbeat.

    A fenced holder is absent at once, and heartbeats of its old stream do not count.
    """
    assert after(*events).away_s("i") == pytest.approx(away_s)
