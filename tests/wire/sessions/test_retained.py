"""Retained batches over the wire (S13, S14): compaction, kills, a backup, and what is refused."""

import shutil

import pyarrow as pa
import pytest

import ackq_broker
from ackq.client import Admin, Session, holder
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns
from tests.wire.churn import publish_among, wait_compacted

ALL = tuple(columns.DELIVERED)


@pytest.fixture
def broker(churning):
    """A broker whose journal is compacted, with queue `orders`."""
    with Admin(churning.endpoint) as admin:
        admin.declare_queue("orders")
    return churning


class Query:
    """A query that retains its batches, and the rows of each as it read them."""

    def __init__(self, endpoint, query_id="query", **retention):
        self._query_id = query_id
        self._endpoint = endpoint
        self._session = Session(endpoint)
        self._fields = {"session": "s", "queues": ["orders"], "holder": holder(), **retention}
        self.holder = self._fields["holder"]
        self._fields["incarnation"] = self.advance(0).incarnation
        self._floor = 0
        self.rows = []

    def advance(self, start):
        return self._session.advance(pb.AdvanceRequest(**{**self._fields, "start_tag": start}))

    def run_batch(self):
        """Publishes three messages among others that are purged; reads and accepts them."""
        number = len(self.rows) + 1
        publish_among(self._endpoint, *(b"%d-%d" % (number, row) for row in range(3)))
        self.read(number)

    def read(self, number):
        """Reads what is ready as a batch, and accepts it."""
        lease = self.advance(self._floor)
        request = pb.FetchRequest(
            session="s",
            incarnation=lease.incarnation,
            epoch=lease.epoch,
            after_tag=self._floor,
            last_tag=lease.end_tag,
            query_id=self._query_id,
            run_id="run",
            batch_id=number,
        )
        read = self._session.fetch(request, ALL, token=self.holder.token)
        self.rows.append(pa.Table.from_batches(read).combine_chunks())
        self._floor = lease.end_tag
        self.advance(self._floor)


def again(endpoint):
    """The rows of the twelve retained batches, as a batch reader gets them."""
    with Admin(endpoint) as admin:
        for number in range(1, 13):
            found = admin.retained("s", batch=number)
            (batch,) = found.batches
            tags = {"first_tag": batch.after_tag + 1, "last_tag": batch.last_tag}
            read = admin.browse_lease("s", **tags, incarnation=found.incarnation)
            yield pa.Table.from_batches(list(read)).combine_chunks()


def test_retained_and_rewound_rows(broker, tmp_path):
    """S13, S14, S9, Q7, O5: retained rows stay the same, and rewound ones come again once.

    Also after accepts, compaction, kill -9, and in a backup; the rewound ones to an opening, too.
    """
    with Admin(broker.endpoint) as admin:
        query = Query(broker.endpoint, retain_ms=3_600_000)
        for _ in range(3):
            query.run_batch()
        assert admin.rewind_session("s", batch=2, dry_run=True).messages == 6
        assert admin.rewind_session("s", batch=2).messages == 6
    broker.kill()
    broker.restart()
    query.run_batch()
    old = query.rows[:3]

    def check(table, *batches):
        """The table has the rows of these old batches, with their headers."""
        bodies = [body for number in batches for body in old[number - 1]["body"].to_pylist()]
        assert table["body"].to_pylist()[: len(bodies)] == bodies
        assert all(table["redelivered"].to_pylist()[: len(bodies)])
        return [dict(each or ()).get("ackq-rewound") for each in table["headers"].to_pylist()]

    assert check(query.rows[3], 2, 3) == [*("2",) * 3, *("3",) * 3, *(None,) * 3]
    with Admin(broker.endpoint) as admin:
        for _ in range(8):
            query.run_batch()
            admin.purge_queue("churn")
        wait_compacted(broker, 12)
        info = admin.session("s")
        assert (info.retained_batches, info.retained_from_batch) == (12, 1)
        assert admin.queue("orders").payload_bytes == 0
        assert list(again(broker.endpoint)) == query.rows
        broker.kill()
        broker.restart()
        assert list(again(broker.endpoint)) == query.rows
        admin.rewind_session("s", batch=12)
        backup = admin.backup("one")
    shutil.copytree(backup.directory, tmp_path / "copy")
    with ackq_broker.embedded(tmp_path / "copy") as copy:
        assert list(again(copy.endpoint)) == query.rows
        anew = Query(copy.endpoint, "anew", rewind=pb.RewindPoint(batch_id=4), holder=query.holder)
        anew.read(1)
        assert check(anew.rows[0], 2, 3)[:6] == ["4"] * 6
        assert anew.rows[0].num_rows == 9 + 8 * 3
