"""Health: whether the broker is ready, and why not."""

import pytest

from ackq import limits
from ackq_broker.http.health import health
from tests.fakes.journal import HeldEngine


@pytest.fixture
def engine():
    return HeldEngine()


def test_ready(engine):
    """M1: a broker without any alarm is ready."""
    assert health(engine) == (True, ())


def test_a_full_disk_leaves_it_ready(engine):
    """M1, P8: a broker with a full disk stays ready, as consumers that drain it must reach it."""
    engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
    engine.alarms.poll_disk()
    assert health(engine) == (True, ("publishers blocked: disk",))


def test_short_memory_leaves_it_ready(engine):
    """M1, P14: a broker short of memory stays ready, as consumers free memory."""
    engine.journal.unsynced_bytes = HeldEngine.MEMORY_BYTES // 2
    engine.alarms.poll_memory()
    assert health(engine) == (True, ("publishers blocked: memory",))


def test_stopping(engine):
    """M1: a stopping broker is not ready, so that new clients go elsewhere or wait."""
    engine.stop()
    assert health(engine) == (False, ("stopping",))


def test_draining(engine):
    """M1, O6: a draining broker is not ready, as it would refuse new clients."""
    engine.alarms.drain(draining=True)
    assert health(engine) == (False, ("draining",))
    engine.alarms.drain(draining=False)
    assert health(engine) == (True, ())


def test_failed(engine):
    """M1, I2: a failed broker is not ready, as it answers nothing."""
    engine.fail(OSError("gone"))
    assert health(engine) == (False, ("failed",))
