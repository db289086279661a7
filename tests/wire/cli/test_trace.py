"""`ackq trace` against real brokers, and with Delta tables (Q9)."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackq.cli.diagnosis.delta_table import find_in_delta
from ackq.cli.diagnosis.trace import _search
from ackq.client import Channel, Publisher
from ackq.errors import InvalidArgumentError, PermissionDeniedError
from tests.wire.cli.conftest import read

SOON_S = 30


@pytest.fixture
def queue(admin, request):
    """A queue with a dead-letter queue, both of this test's own."""
    name = request.node.name
    admin.declare_queue(f"{name}-dead")
    admin.declare_queue(name, dead_letter_queue=f"{name}-dead")
    return name


def publish(endpoint, queue, *ids):
    with Publisher(endpoint) as publisher:
        sent = [publisher.publish(b"x", routing_key=queue, message_id=each) for each in ids]
        for each in sent:
            each.result(timeout=SOON_S)


def test_a_message_on_its_way(run, endpoint, open_lease, queue):
    """Q9: it waits, is unacked at a client, is a dead letter, has left; several may have one id."""
    publish(endpoint, queue, "a", "b", "b", "leased")
    (waiting,) = read(run("trace", "a", "--json"))["found"]
    assert (waiting["queue"], waiting["position"], waiting["state"]) == (queue, 1, "ready")
    assert [each["position"] for each in read(run("trace", "b", "--json"))["found"]] == [2, 3]
    with Channel(endpoint, label="billing:1") as channel:
        consumer = channel.consume(queue, mode="client", prefetch=3, outcomes=["rejected"])
        messages = [consumer.receive(timeout_s=SOON_S) for _ in range(3)]
        (held,) = read(run("trace", "a", "--json"))["found"]
        assert (held["channel"], held["delivery_tag"]) == ("billing:1", 1)
        assert "unacked at the client 'billing:1'" in run("trace", "a").stdout
        messages[0].reject("no id").result(timeout=SOON_S)
        messages[1].accept().result(timeout=SOON_S)
        messages[2].accept().result(timeout=SOON_S)
    (dead,) = read(run("trace", "a", "--json"))["found"]
    assert dead["queue"] == f"{queue}-dead"
    assert dead["dead_letter"]["reason"] == "no id"
    assert dead["dead_letter"]["queue"] == queue
    gone = run("trace", "b").stdout
    assert "No message with the id 'b' is in a queue now" in gone
    assert "ackq-broker trace --data DIR b" in gone
    open_lease(queue)
    (leased,) = read(run("trace", "leased", "--queue", queue, "--json"))["found"]
    assert (leased["session"], leased["delivery_tag"], leased["attempts"]) == (queue, 1, 1)


def test_more_messages_than_a_slice(run, endpoint, queue):
    """Q9, I6: the last of many is found, and all are counted."""
    ids = pa.array([f"id-{number}" for number in range(25_000)])
    with Publisher(endpoint) as publisher:
        rows = pa.record_batch(
            {"body": pa.repeat(b"x", 25_000).cast(pa.binary()), "message_id": ids}
        )
        publisher.publish_batch(rows, routing_key=queue).result(timeout=SOON_S)
    found = read(run("trace", "id-24999", "--queue", queue, "--json"))
    assert (found["looked_at"], found["found"][0]["position"]) == (25_000, 25_000)


def test_a_queue_that_is_not_there(run):
    """A wrong name is said."""
    assert run("trace", "m", "--queue", "nowhere").exit_code != 0


class Guarded:
    """What administration is to a user who may read queue `open` alone."""

    def __init__(self, admin, queue):
        self._admin = admin
        self._open = queue

    def browse(self, name, **options):
        if name != self._open:
            raise PermissionDeniedError(f"read on queue '{name}'")
        return self._admin.browse(name, **options)


def test_queues_that_are_closed_to_the_user(admin, endpoint, queue):
    """Q9: they are named, and the others are looked at; one that is named alone is an error."""
    publish(endpoint, queue, "m")
    guarded = Guarded(admin, queue)
    found = _search(guarded, ("secret", queue), "m")
    assert ([hit.queue for hit in found.hits], found.closed) == ([queue], ["secret"])
    with pytest.raises(PermissionDeniedError):
        _search(guarded, ("secret",), "m")


# --- Delta ---


class Table:
    """A Delta table as Delta's protocol describes it: a log of actions, and Parquet files."""

    def __init__(self, root, column="message_id", mapped=""):
        self.root = root
        self._physical = mapped or column
        (root / "_delta_log").mkdir(parents=True)
        self._number = -1
        metadata = {"delta.columnMapping.physicalName": mapped} if mapped else {}
        field = {"name": column, "type": "string", "nullable": True, "metadata": metadata}
        schema = json.dumps({"type": "struct", "fields": [field]})
        self.commit({"metaData": {"id": "t", "schemaString": schema}}, operation="CREATE TABLE")

    def commit(self, *actions, operation="STREAMING UPDATE", **parameters):
        self._number += 1
        info = {"timestamp": 1_357_034_400_000 + self._number, "operation": operation}
        lines = [{"commitInfo": {**info, "operationParameters": parameters}}, *actions]
        name = f"_delta_log/{self._number:020d}.json"
        (self.root / name).write_text("\n".join(map(json.dumps, lines)) + "\n")
        return self._number

    def file(self, *ids, stats=True, **fields):
        """Writes a file with these ids; the action that adds it."""
        path = f"part {len(list(self.root.glob('*.parquet')))}.parquet"
        pq.write_table(pa.table({self._physical: list(ids)}), self.root / path)
        extremes = {
            "minValues": {self._physical: min(ids)},
            "maxValues": {self._physical: max(ids)},
        }
        said = {"stats": json.dumps({"numRecords": len(ids), **extremes})} if stats else {}
        # As Delta writes paths.
        return {"add": {"path": path.replace(" ", "%20"), "dataChange": True, **said, **fields}}

    def append(self, *ids, batch_id=0, **fields):
        return self.commit(self.file(*ids, **fields), queryId="Q", epochId=str(batch_id))


def test_the_version_that_brought_it(tmp_path):
    """Q9: with query and micro-batch, the file, and the version that rewrote that."""
    table = Table(tmp_path / "t")
    table.append("a", "b", batch_id=0)
    second = table.append("c", "d", "d", batch_id=1)
    (version,) = find_in_delta(str(tmp_path / "t"), "d", "message_id").versions
    assert (version.number, version.operation, version.query_id) == (
        second,
        "STREAMING UPDATE",
        "Q",
    )
    assert (version.batch_id, version.rows, version.removed_in) == (1, 2, -1)
    # OPTIMIZE brings the rows in another file, which is no change of data.
    rewritten = table.file("a", "b", "c", "d", "d", dataChange=False)
    third = table.commit(
        {"remove": {"path": "part%201.parquet", "dataChange": False}},
        rewritten,
        operation="OPTIMIZE",
    )
    (version,) = find_in_delta(str(tmp_path / "t"), "d", "message_id").versions
    assert (version.number, version.removed_in) == (second, third)


def test_what_a_table_has_no_more(tmp_path):
    """Q9: a file that was vacuumed, and commits that were cleaned up, are said."""
    table = Table(tmp_path / "t")
    table.append("a")
    (tmp_path / "t/part 0.parquet").unlink()
    assert (finds := find_in_delta(str(tmp_path / "t"), "a", "message_id")).versions == []
    assert (finds.gone, finds.first, finds.last) == (1, 0, 1)
    kept = table.file("k")
    table.append("z", stats=False)
    log = tmp_path / "t/_delta_log"
    add = {**kept["add"], "stats": None}
    pq.write_table(pa.table({"add": [add, None]}), log / f"{1:020d}.checkpoint.parquet")
    for number in (0, 1):
        (log / f"{number:020d}.json").unlink()
    finds = find_in_delta(str(tmp_path / "t"), "k", "message_id")
    assert [version.number for version in finds.versions] == [-1]
    assert [v.number for v in find_in_delta(str(tmp_path / "t"), "z", "message_id").versions] == [2]


def test_columns_of_a_table(tmp_path):
    """Q9: another name, one that column mapping renamed, a transaction of foreachBatch."""
    table = Table(tmp_path / "t", column="id", mapped="col-7")
    txn = {"txn": {"appId": "app", "version": 9}}
    table.commit(table.file("a"), txn, operation="WRITE")
    (version,) = find_in_delta(str(tmp_path / "t"), "a", "id").versions
    assert (version.query_id, version.batch_id) == ("app", 9)
    with pytest.raises(InvalidArgumentError, match="no column 'message_id'; it has id"):
        find_in_delta(str(tmp_path / "t"), "a", "message_id")


def test_what_is_no_table(tmp_path):
    """Q9: a wrong path is said."""
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidArgumentError, match="is no Delta table"):
            find_in_delta(str(path), "a", "message_id")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(InvalidArgumentError, match="no commit"):
        find_in_delta(str(tmp_path), "a", "message_id")


def test_the_command_with_a_table(run, endpoint, queue, tmp_path):
    """Q9: one answer for broker and table."""
    table = Table(tmp_path / "t")
    table.append("m", batch_id=4)
    publish(endpoint, queue, "m")
    text = run("trace", "m", "--queue", queue, "--delta", str(tmp_path / "t")).stdout
    assert f"In queue '{queue}' at position 1" in text
    assert (
        "has it since version 1 of 2013-01-01 10:00:00 UTC, STREAMING UPDATE, micro-batch 4" in text
    )
    found = read(run("trace", "no", "--queue", queue, "--delta", str(tmp_path / "t"), "--json"))
    assert found["delta"]["versions"] == []
    text = run("trace", "no", "--queue", queue, "--delta", str(tmp_path / "t")).stdout
    assert "does not have it in versions 0 to 1" in text
