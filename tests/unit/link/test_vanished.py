"""When a held message counts as removed there, and when it is merely late (L18)."""

import pyarrow as pa
import pytest

from ackq_link.adapter import Deliveries, Remaining
from ackq_link.edge.deliveries import StoredDeliveries, StoredRun
from ackq_link.vanished import Redelivery, VanishedCount


def brought(redelivery, first, *rows):
    """Deliveries from a number on are stored, each (redelivered, matched)."""
    marks = [redelivered for redelivered, _ in rows]
    column = pa.record_batch({"body": pa.array([b""] * len(rows), pa.binary())})
    runs = tuple(StoredRun(first + n, 1, 1, matched, False) for n, (_, matched) in enumerate(rows))
    redelivery.stored(Deliveries(column, first, marks, 0), StoredDeliveries(runs))


AGAIN, UNMARKED, KNOWN_TO_NONE, FRESH = (True, True), (False, True), (True, False), (False, False)


@pytest.fixture
def redelivery():
    return Redelivery()


def test_an_empty_queue(redelivery):
    """L18: at the first look; what was on its way then has come by the second, and is stored."""
    redelivery.looked(Remaining(0, 1, 0))
    assert redelivery.looking
    redelivery.looked(Remaining(7, 1, 2))
    assert not redelivery.looking
    brought(redelivery, 1, AGAIN)
    assert not redelivery.complete
    brought(redelivery, 2, AGAIN)
    assert redelivery.complete


def test_an_empty_queue_that_sends_nothing(redelivery):
    """L18: all of it is gone."""
    redelivery.looked(Remaining(0, 1, 0))
    redelivery.looked(Remaining(0, 1, 0))
    assert redelivery.complete


def test_a_queue_with_messages(redelivery):
    """L18: a message behind the second look, new to both brokers, comes behind all the others."""
    redelivery.looked(Remaining(9, 1, 0))
    redelivery.looked(Remaining(9, 1, 2))
    assert not redelivery.looking
    brought(redelivery, 1, FRESH, FRESH, AGAIN, UNMARKED, KNOWN_TO_NONE)
    assert not redelivery.complete
    brought(redelivery, 6, AGAIN, FRESH, AGAIN)
    assert redelivery.complete


@pytest.mark.parametrize("told", [None, Remaining(0, 2, 0), Remaining(0, 0, 0)])
def test_looks_that_tell_nothing(redelivery, told):
    """L18: of another consumer, of none, or unanswered; the looks before do not count either."""
    redelivery.looked(Remaining(0, 1, 0))
    redelivery.looked(told)
    redelivery.looked(Remaining(9, 1, 0))
    assert redelivery.looking
    brought(redelivery, 1, FRESH)
    assert not redelivery.complete
    redelivery.looked(Remaining(9, 1, 1))
    assert not redelivery.complete
    brought(redelivery, 2, FRESH)
    assert redelivery.complete


def test_each_counts_once():
    """L18: those that were counted are missing until they are processed, also behind a cut."""
    count = VanishedCount()
    assert [count.missing(each) for each in (3, 3, 1, 1)] == [3, 0, 0, 0]
    assert count.missing(4) == 3  # of the next subscription: one was counted before
    assert count.missing(0) == 0
    assert count.missing(2) == 2
    assert count.total == 8
