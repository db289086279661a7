"""A snapshot that is taken while commands are applied is the state at its cut.

The harness of these tests also takes one during all other tests of the core.
"""

from itertools import islice

import pytest
from pyroaring import BitMap64

from ackq_broker.core import Core, records
from ackq_broker.core import commands as c
from ackq_broker.core.snapshot import image
from tests.sizes import sized
from tests.unit.core.harness import Harness, refused
from tests.unit.core.test_restart import busy


@pytest.mark.parametrize("step", [0, 1, 10, 100])
def test_a_cut_is_of_one_record(harness, step):
    """I2: a cut at each record of a history is kept, while all later records are applied.

    The history has every kind of record. Some pieces are taken between two of them, or none before
    the last.
    """
    busy(harness)
    before = Core()
    for sequence, record in enumerate(harness.log, 1):
        before.apply(sequence, record)
        if sequence % sized(5, 1):
            continue
        core, expected = Core.restore(before.snapshot()), before.snapshot()
        pieces, taken = core.cut().pieces(), []
        for rest, later in enumerate(harness.log[sequence:], sequence + 1):
            taken += islice(pieces, step)
            core.apply(rest, later)
        taken += pieces
        assert Core.restore(b"".join(taken)).snapshot() == expected
        assert core.snapshot() == harness.core.snapshot()


def test_a_key_that_is_used_again(harness):
    """I2: the snapshot has the item that had the key at the cut, not the new one."""
    expected = harness.core.snapshot()
    core = Core.restore(expected)
    pieces = core.cut().pieces()
    publisher = b"p" * 16
    for record in (
        records.PublisherClosed(publisher, 5, finished=True),
        records.PublisherOpened(publisher, "again"),
        records.PublisherOpened(b"q" * 16, "new"),
        records.PublisherClosed(publisher, 6),
    ):
        core.apply(core.sequence + 1, record)
    assert Core.restore(b"".join(pieces)).snapshot() == expected


def test_one_cut_at_a_time(harness):
    """I6: the next cut waits until all pieces of the last were taken, or it was closed."""
    core = Core.restore(harness.core.snapshot())
    cut = core.cut()
    refused(AssertionError, "one cut", core.cut)
    cut.close()
    cut = core.cut()
    assert Core.restore(b"".join(cut.pieces())).snapshot() == core.snapshot()
    core.cut()


def test_items_of_many_parts(harness, monkeypatch):
    """I2, K3, P13: long stages, transactions and exchanges are captured when they change."""
    monkeypatch.setattr(image, "_SORT_KEYS", 7)
    harness.declare_filled("q", 200)
    stage, writer = b"s" * 16, b"t" * 16
    harness.do(c.OpenStage(stage, "w", 1, "run"))
    harness.do(c.OpenPublisher(writer, transactional=True))
    harness.do(c.DeclareExchange("x", "topic"))
    for number in range(100):
        fill(harness, stage, writer, number)
    expected = harness.core.snapshot()
    core = Core.restore(expected)
    pieces = core.cut().pieces()
    log = len(harness.log)
    for number in range(100, 103):
        fill(harness, stage, writer, number)
    for record in harness.log[log:]:
        core.apply(core.sequence + 1, record)
    assert Core.restore(b"".join(pieces)).snapshot() == expected
    assert core.snapshot() == harness.core.snapshot()


def fill(harness: Harness, stage: bytes, writer: bytes, number: int) -> None:
    """Adds a row to a stage and to a transaction, and a binding; later ones replace others."""
    routes = c.Routes(("q",))
    harness.do(c.StageBlock(stage, "", routes, 1, 1))
    block = c.TransactionBlock(
        writer, b"1" * 16, BitMap64((number + 1,)), "", True, routes, 1, 1, True
    )
    harness.do(block)
    harness.do(c.Bind("x", "q", f"{number % 7}.{number}"))
    if number >= 100:
        harness.do(c.Unbind("x", "q", f"{(number - 100) % 7}.{number - 100}"))
