"""The garbage collector next to a large state, with a clock of the test."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from ackq_broker.engine import garbage
from ackq_broker.engine.garbage import GarbageCollector
from tests.libraries import replace


@pytest.fixture
def broker():
    """The parts of a broker that the collector uses."""
    gc.collect()
    made = SimpleNamespace(now=1000.0, done=0, ended=0)
    made.collector = GarbageCollector(lambda: made.done, lambda: made.ended, lambda: made.now)
    made.collector.start()
    yield made
    made.collector.stop()


@pytest.fixture
def walked(monkeypatch):
    """Records the full collections."""
    walks = []
    replace(monkeypatch, garbage, gc, collect=lambda: walks.append(gc.get_freeze_count()))
    return walks


def test_what_a_collection_found_alive_is_left_out_of_the_next(broker):
    """I6: 10,000 queues are scanned once, and not whenever objects grow by a quarter."""
    assert broker.collector is not None
    state = [[number] for number in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() >= len(state)
    assert len(gc.get_objects()) < len(state)


def test_objects_are_scanned_once_and_garbage_is_not_left_out(broker):
    """I6: no collection scans many objects, however many a client makes the broker keep.

    What is alive in a collection that frees more is scanned again: it may end soon.
    """
    assert broker.collector is not None
    state = []
    for number in range(5 * garbage._YOUNG_OBJECTS):
        state.append([number])
        assert sum(gc.get_count()[1:]) == 0
    frozen = gc.get_freeze_count()
    assert frozen >= len(state) - 2 * garbage._YOUNG_OBJECTS
    for _ in range(3 * garbage._YOUNG_OBJECTS):
        circle = []
        circle.append(circle)
    assert gc.get_freeze_count() <= frozen


def test_garbage_among_it_is_found_in_a_quiet_time(broker):
    """I6: a frozen cycle that is dropped later is found in a quiet time."""
    dropped = type("Dropped", (), {})()
    dropped.itself = dropped
    gc.collect()
    found = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert found() is not None
    broker.now += garbage._APART_S
    broker.collector.poll()
    assert found() is None


def test_when_nobody_is_kept_waiting(broker, walked):
    """I6: after ten quiet seconds, and ten minutes after the previous full collection.

    Once an hour in a broker that is never quiet, and after five thousand streams.
    """

    def passes(seconds, done):
        for _ in range(seconds):
            broker.now += 1
            broker.done += done
            broker.collector.poll()
        return len(walked)

    assert passes(700, done=1) == 0
    assert passes(60, done=0) == 1
    assert passes(3600, done=1) == 2
    broker.ended += garbage._STREAMS
    broker.collector.poll()
    assert len(walked) == 3
