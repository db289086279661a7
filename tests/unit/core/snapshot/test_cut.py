"""A snapshot that is taken while commands are applied is the state at its cut.

The harness of these tests also takes one during all other tests of the core.
"""

from pyroaring import BitMap64

from ackq_broker.core import Core
from ackq_broker.core import commands as c
from ackq_broker.core.snapshot import image


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


def fill(harness, stage, writer, number):
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
