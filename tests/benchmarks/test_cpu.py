"""The part of a benchmark that a process belongs to."""

import cpu
import pytest
from cpu import Meter, Process

STAT = "7 (a (b) c) S 3 1 1 0 -1 4194560 1 2 3 4 250 50 100 200 20 0 1 0 5 6"


def process(pid, parent, name, own_s=1.0, children_s=0.0):
    return Process(pid, name, parent, own_s, children_s)


def test_a_line_of_the_kernel_is_read():
    """A line of /proc/PID/stat is read, also if the name has blanks and parentheses."""
    read = Process.parsed(STAT)
    assert (read.pid, read.name, read.parent) == (7, "a (b) c", 3)
    assert read.own_s == pytest.approx(300 * cpu._TICK_S)
    assert read.children_s == pytest.approx(300 * cpu._TICK_S)


def test_each_process_has_one_part():
    """The Kafka server is a child and a JVM as Spark is, and not counted with ackq's."""
    found = [
        process(1, 0, "python", 1.0, 64.0),
        process(2, 1, "java", 2.0, 0.5),
        process(3, 2, "python3", 4.0, 0.25),
        process(4, 3, "python3", 8.0),
        process(5, 1, "python", 16.0),
        process(6, 1, "java", 32.0),
        process(7, 99, "java", 128.0),
        process(8, 1, "python", 256.0),
    ]
    seconds = cpu.by_part(found, 1, {"ackq": 5, "kafka": 6}, "ackq")
    assert seconds == {"client": 257.0, "jvm": 2.0, "worker": 12.75, "broker": 16.0}
    assert cpu.by_part(found, 1, {"ackq": 5, "kafka": 6}, "kafka")["broker"] == 32.0


def test_micro_batches_are_counted_between_the_first_and_the_last_reading(monkeypatch):
    """The first micro-batch is not timed; one without a reading of its own counts all the same."""
    readings = iter([{"jvm": 1.0}, {"jvm": 4.0}])
    monkeypatch.setattr(cpu, "seconds", lambda _: next(readings))
    meter = Meter("ackq", skip=1)
    assert meter.per_row(100) == {}
    for batches in (0, 0, 1, 1, 4):
        meter.at(batches)
    assert meter.per_row(100) == {"jvm": pytest.approx(10_000.0)}
