"""Alarms: the reported kind is that of the reported reason, and the log has their events."""

from ackq import limits
from ackq_broker.engine.alarms import AlarmKind
from tests.fakes.journal import HeldEngine


def test_the_kind_is_that_of_the_reason(caplog):
    """P14, O6, M3: draining precedes disk, and disk memory; the log has the first and the end."""
    engine = HeldEngine()
    alarms, told = engine.alarms, []
    listening = alarms.listening("publish", lambda reason: told.append(reason[:15]), int)
    assert (alarms.kind, alarms.reason) == (AlarmKind.NONE, "")
    with listening:
        engine.journal.unsynced_bytes = HeldEngine.MEMORY_BYTES // 2
        alarms.poll_memory()
        alarms.poll_memory()
        assert (alarms.kind, alarms.reason) == (AlarmKind.MEMORY, engine.in_flight.reason)
        engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
        alarms.poll_disk()
        assert (alarms.kind, alarms.reason) == (AlarmKind.DISK, engine.disk_alarm.reason)
        alarms.drain(draining=True)
        assert (alarms.kind, "drained" in alarms.reason) == (AlarmKind.DRAINING, True)
        alarms.drain(draining=False)
        engine.journal.unsynced_bytes = 0
        alarms.poll_memory()
        assert alarms.kind == AlarmKind.DISK
        engine.free_bytes = limits.DISK_RESERVE_BYTES
        alarms.poll_disk()
        assert (alarms.kind, alarms.reason) == (AlarmKind.NONE, "")
    disk, memory = "The broker's di", "The broker's me"
    assert told == [memory, disk, "The broker is b", disk, ""]
    events = [(each.event, each.fields) for each in caplog.records if hasattr(each, "event")]
    assert events == [
        ("blocked", {"disk": False, "memory": True}),
        ("unblocked", {"disk": False, "memory": False}),
    ]


def test_a_stream_that_begins_in_a_short_alarm_learns_of_its_end():
    """P14: bytes that arrive turn the alarm on between two polls, of which the next finds it over.

    The stream has told its client that it is blocked. The disk's is turned on by the start.
    """
    engine = HeldEngine()
    alarms, told = engine.alarms, []
    engine.journal.unsynced_bytes = HeldEngine.MEMORY_BYTES // 2
    engine.in_flight.brought(1)
    with alarms.listening("publish", told.append, int):
        engine.journal.unsynced_bytes = 0
        alarms.poll_memory()
    assert (told[0][:15], told[-1]) == ("The broker's me", "")
    engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
    engine.disk_alarm.poll()
    with alarms.listening("publish", told.append, int):
        engine.free_bytes = limits.DISK_RESERVE_BYTES
        alarms.poll_disk()
    assert (told[-2][:15], told[-1]) == ("The broker's di", "")
