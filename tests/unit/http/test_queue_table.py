"""Pages of the table of queues (M5)."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.core.commands import DeclareQueue, QueueInfo, QueueProperties
from ackq_broker.http.context import View
from ackq_broker.http.listing import ListedRows
from ackq_broker.http.queue_table import PageRequest, QueueTable, QueueTables, is_full
from tests.fakes.journal import HeldEngine

NOW_US = 1_700_000_000_000_000


def queue(name, *, age_ms=0, properties=None, **counts):
    values = {"ready": 0, "unacked": 0, "staged": 0, "payload_bytes": 0, **counts}
    return QueueInfo(
        queue=name,
        queue_id=1,
        properties=properties or QueueProperties(),
        oldest_us=NOW_US - age_ms * 1000 if age_ms else 0,
        sessions=(),
        published=values.pop("published", 0),
        accepted=0,
        **values,
    )


TABLE = QueueTable(
    ListedRows(
        (
            queue("apple", age_ms=5, ready=3),
            queue("Banana", ready=0),
            queue("cherry", age_ms=9, ready=1, unacked=7, dead_letters_held=1),
            queue("date", age_ms=5, ready=9, properties=QueueProperties(max_length=9)),
        ),
        NOW_US,
        0.0,
    )
)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # The oldest or largest first, ties by name, those without messages last.
        ({"sort": "age"}, ["cherry", "apple", "date", "Banana"]),
        ({"sort": "name"}, ["apple", "Banana", "cherry", "date"]),
        ({"sort": "ready"}, ["date", "apple", "cherry", "Banana"]),
        ({"sort": "unacked"}, ["cherry", "apple", "Banana", "date"]),
        ({"show": "messages"}, ["cherry", "apple", "date"]),
        ({"show": "unacked"}, ["cherry"]),
        ({"show": "dead"}, ["cherry"]),
        ({"show": "full"}, ["date"]),
        # A part of the name, in any case.
        ({"filter": "AN"}, ["Banana"]),
        ({"filter": "e", "show": "messages"}, ["cherry", "apple", "date"]),
        ({"filter": "*"}, []),
        ({"offset": 1, "limit": 2}, ["apple", "date"]),
        ({"offset": 9}, []),
        ({"limit": 0}, ["cherry"]),
    ],
)
def test_pages(request_, expected):
    """M5: queues are sorted, filtered and cut into pages; past the end a page is empty."""
    rows, matched = TABLE.page(PageRequest(**request_))
    assert [row.queue for row in rows] == expected
    assert matched >= len(rows)


@pytest.mark.parametrize("wrong", [{"sort": "colour"}, {"show": "some"}])
def test_what_it_cannot_do_is_refused(wrong):
    """M5: an unknown sort or filter of the queue table, as in a typed address, is refused."""
    with pytest.raises(InvalidArgumentError, match="Queues are shown by all"):
        TABLE.page(PageRequest(**wrong))


def test_totals():
    """M5: totals of the queue table are sums, with the queue of the oldest message."""
    totals = TABLE.totals
    assert TABLE.page(PageRequest(offset=9))[1] == 4
    assert (totals["queues"], totals["ready"], totals["unacked"]) == (4, 13, 7)
    assert (totals["oldest_queue"], totals["oldest_age_ms"]) == ("cherry", 9)


@pytest.mark.parametrize(
    ("properties", "counts", "full"),
    [
        ({}, {"ready": 9}, False),
        ({"max_length": 9}, {"ready": 4, "unacked": 2, "staged": 2, "delayed": 1}, True),
        ({"max_length": 9}, {"ready": 8}, False),
        ({"max_length": 9, "overflow": "drop-head"}, {"ready": 4, "unacked": 5}, False),
        ({"max_length": 9, "overflow": "drop-head"}, {"ready": 9}, True),
        ({"max_bytes": 100}, {"ready": 1, "payload_bytes": 100}, True),
        ({"max_bytes": 100}, {"ready": 1, "payload_bytes": 99}, False),
    ],
)
def test_at_its_bound(properties, counts, full):
    """M5, Q3: the messages that count towards a queue's bound depend on its overflow mode."""
    assert is_full(queue("q", properties=QueueProperties(**properties), **counts)) is full


async def test_a_view_of_some_queues():
    """M5: rows, totals and matches cover only the queues that the user may see."""
    engine = HeldEngine()
    for name in ("a1", "a2", "b1"):
        engine.decide(DeclareQueue(name, QueueProperties()))
    tables = QueueTables(engine)
    some = View("alice", lambda names: [name.startswith("a") for name in names])
    table, rows, matched = await tables.page(some, PageRequest(filter="1"))
    assert ([row.queue for row in rows], matched, table.totals["queues"]) == (["a1"], 1, 2)
    assert (await tables.get(View())).totals["queues"] == 3
    assert await tables.get(some) is table
