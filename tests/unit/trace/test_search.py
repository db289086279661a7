"""Q9: every block that the files still have is looked at, whole or compacted."""

import pytest
from pyroaring import BitMap

from ackq.errors import NotFoundError
from ackq_broker.service.blocks.compacted import compact
from ackq_broker.trace.search import search
from tests.unit.trace.journalled import Journalled, block_of


@pytest.fixture
def broker(tmp_path):
    made = Journalled(tmp_path / "data")
    made.declare("q")
    yield made
    made.running.journal.close()


def rows(broker, message_id):
    return [(row.block_id, row.number) for row in search(broker.directory, message_id).rows]


def test_ids_are_compared_whole(broker):
    """An id that another one begins with is another id."""
    broker.publish("q", "m", "m1", "xm")
    broker.publish("q", "m1")
    assert rows(broker, "m") == [(1, 0)]
    assert rows(broker, "m1") == [(1, 1), (2, 0)]
    assert rows(broker, "1") == []


def test_a_row_of_a_compacted_block_keeps_its_number(broker):
    """The block was rewritten without the rows that are dead, and is found in both places once."""
    broker.publish("q", "a", "b", "c")
    broker.running.journal.rewrite_blocks([(1, compact(block_of("a", "b", "c"), BitMap((2,))))])
    assert rows(broker, "c") == [(1, 2)]
    assert rows(broker, "a") == [(1, 0)]
    assert search(broker.directory, "c").brought[1].sequence == broker.core.sequence


def test_messages_without_an_id_are_passed_over(broker):
    """A body with the same bytes is no id."""
    from tests.fakes.blocks import encoded

    broker.publish("q", "m")
    broker.running.journal.rewrite_blocks([(1, encoded(body=[b"needle"]))])
    assert rows(broker, "needle") == []
    assert rows(broker, "m") == [(1, 0)]


def test_a_directory_without_a_journal(tmp_path):
    """A wrong path is said."""
    with pytest.raises(NotFoundError, match="holds no journal"):
        search(tmp_path, "m")
