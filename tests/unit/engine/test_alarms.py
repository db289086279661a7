"""Alarms: the reported kind is that of the reported reason."""

import pytest

from ackq import limits
from ackq_broker.engine.alarms import AlarmKind
from tests.fakes.journal import HeldEngine


@pytest.fixture
def engine():
    return HeldEngine()


def test_the_kind_is_that_of_the_reason(engine):
    """P14, O6: draining precedes disk, and disk memory; none when publishers are not blocked."""
    alarms = engine.alarms
    assert (alarms.kind, alarms.reason) == (AlarmKind.NONE, "")
    engine.journal.unsynced_bytes = HeldEngine.MEMORY_BYTES // 2
    alarms.poll_memory()
    assert (alarms.kind, alarms.reason) == (AlarmKind.MEMORY, engine.in_flight.reason)
    engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
    alarms.poll_disk()
    assert (alarms.kind, alarms.reason) == (AlarmKind.DISK, engine.disk_alarm.reason)
    alarms.drain(draining=True)
    assert (alarms.kind, "drained" in alarms.reason) == (AlarmKind.DRAINING, True)
