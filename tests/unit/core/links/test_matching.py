"""Matched deliveries beside others (L4, L5); what matches: `test_deliveries_model`."""

from ackq_broker.core import commands as c
from tests.unit.core.link_process import LinkProcess


def test_another_link_has_its_own_entries(process: LinkProcess) -> None:
    """L4: one link does not know the entries of another."""
    process.store(["a"])
    other = LinkProcess(process.harness, "other", source="amqp://elsewhere/queue")
    other.subscribe()
    assert other.matched(["a"]) == [False]


def test_matched_rows_are_no_rows_of_the_block(process: LinkProcess) -> None:
    """L5: matched rows of different lengths before, between and after the stored ones."""
    harness = process.harness
    process.store(["a", "bbb", "c"])
    process.subscribe()
    assert process.positions(["a", "xx", "bbb", "yyyy", "z", "c"]) == [1, 4, 2, 5, 6, 3]
    assert harness.browse("q") == ["a", "bbb", "c", "xx", "yyyy", "z"]
    assert harness.info("q").payload_bytes == 5 + 7
    process.subscribe()
    reply: c.StoredLinked = process.store(["z", "yyyy"])
    assert reply.block_id is None
    assert harness.info("q").payload_bytes == 12
