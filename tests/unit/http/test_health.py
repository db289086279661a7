"""Health: whether the broker is ready, and why not."""

import pytest

from ackq import limits
from ackq_broker.http.health import health
from tests.fakes.journal import HeldEngine


def full_disk(engine):
    engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
    engine.alarms.poll_disk()


def short_memory(engine):
    engine.journal.unsynced_bytes = HeldEngine.MEMORY_BYTES // 2
    engine.alarms.poll_memory()


def drained_and_back(engine):
    engine.alarms.drain(draining=True)
    engine.alarms.drain(draining=False)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (drained_and_back, (True, ())),
        (full_disk, (True, ("publishers blocked: disk",))),
        (short_memory, (True, ("publishers blocked: memory",))),
        (HeldEngine.stop, (False, ("stopping",))),
        (lambda engine: engine.alarms.drain(draining=True), (False, ("draining",))),
        (lambda engine: engine.fail(OSError("gone")), (False, ("failed",))),
    ],
    ids=["nothing", "full disk", "short memory", "stopped", "drained", "failed"],
)
def test_ready(event, found):
    """M1, O6, P8, P14: consumers that free disk or memory must reach a broker short of these.

    A broker that stops, is drained or has failed would refuse new clients.
    """
    engine = HeldEngine()
    event(engine)
    assert health(engine) == found
