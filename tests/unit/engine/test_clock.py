"""The broker's clocks, over injected clocks of the machine."""

import logging

import pytest

from ackq import limits
from ackq_broker.engine.clock import BrokerClock, Uptime, age_ms

SECOND_US = 1_000_000
WAIT_S = limits.CLOCK_JUMP_WAIT_MS / 1000


class Machine:
    """A machine whose wall clock can be set."""

    def __init__(self):
        self.steady_s = 50.0
        self.wall_s = 1_000_000.0
        self.clock = BrokerClock(0, lambda: self._ns(self.wall_s), lambda: self._ns(self.steady_s))
        self.now()

    def _ns(self, seconds):
        return round(seconds * 1e9)

    def now(self):
        return self.clock.now_us() / SECOND_US

    def goes_on(self, seconds):
        self.steady_s += seconds
        self.wall_s += seconds
        return self.now()


@pytest.fixture
def machine():
    return Machine()


def test_clock_never_runs_backwards(machine, caplog):
    """Q8: while the machine's clock is behind, the broker's stands still.

    A start long after the newest time of the journal takes the wall clock as it is. A clock that
    was set back and then right again did not jump.
    """
    wall = iter([5_000, 9_000, 7_000, 10_000])
    clock = BrokerClock(6, lambda: next(wall), lambda: 0)
    assert [clock.now_us() for _ in range(4)] == [6, 9, 9, 10]
    assert BrokerClock(5, lambda: 10**18, lambda: 0).now_us() == 10**15
    machine.wall_s -= 3600
    assert machine.goes_on(10) == 1_000_000
    machine.wall_s += 3600
    assert machine.goes_on(10) == 1_000_020
    assert caplog.records == []


def test_a_jump_is_held_back_until_it_lasts(machine, caplog):
    """Q8: after a jump of over a minute the broker's time goes on steadily, so nothing expires.

    A correction that stays takes effect after the wait. Both are in the log. A step of a minute or
    less is believed.
    """
    machine.wall_s += 3600
    assert machine.now() == 1_000_000
    assert machine.goes_on(WAIT_S - 1) == 1_000_000 + WAIT_S - 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "jumped ahead by 3600 s" in caplog.messages[0]
    now = 1_000_000 + 3600 + WAIT_S
    assert [machine.goes_on(1), machine.goes_on(1)] == [now, now + 1]
    for steps in (1, 2):
        machine.wall_s += 60
        assert machine.goes_on(1) == now + 1 + 61 * steps
    assert len(caplog.records) == 2


def test_a_jump_that_is_undone_never_was(machine, caplog):
    """Q8: a clock that is corrected within the wait has expired no message."""
    machine.wall_s += 3600
    machine.goes_on(100)
    machine.wall_s -= 3600
    assert machine.goes_on(1) == 1_000_101
    assert "right again after its jump" in caplog.messages[1]
    machine.wall_s += 3600
    machine.now()
    assert machine.goes_on(WAIT_S - 1) == 1_000_101 + WAIT_S - 1


def test_a_jump_to_a_time_that_the_journal_is_ahead_of():
    """Q8: a jump that leaves the machine's clock behind the broker's is ahead by nothing."""
    wall_s = 1_000
    clock = BrokerClock(5_000_000_000, lambda: wall_s * 10**9, lambda: 0)
    clock.now_us()
    wall_s += 120
    assert (clock.jump_us(), clock.now_us()) == (0, 5_000_000_000)
    wall_s += 6_000
    assert clock.jump_us() == 2_120_000_000


def test_age():
    """Q8: an age is never negative; no time has no age."""
    assert [age_ms(0, 5_000), age_ms(1_000, 5_999), age_ms(9_000, 5_000)] == [0, 4, 0]


def test_uptime_leaves_out_what_the_process_was_late_by():
    """C12, S5: a tick counts 1.25 s at most, also when it comes an hour late.

    In turns of three seconds whose callbacks read it, uptime never runs backwards.
    """
    now = [1000.0]
    uptime = Uptime(lambda: now[0])
    for _ in range(3):
        now[0] += 1
        uptime.tick()
    assert uptime() == 3
    now[0] += 3600
    assert uptime() == 4.25
    uptime.tick()
    now[0] += 0.5
    assert uptime() == 4.75
    uptime.tick()
    read = []
    for _ in range(12):
        for _ in range(30):
            now[0] += 0.1
            read.append(uptime())
        uptime.tick()
    assert read == sorted(read)
    assert uptime() == pytest.approx(4.75 + 15)
