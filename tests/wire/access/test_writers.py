"""Attacks under the name of a writer that the attacker knows or guesses (A10)."""

import pytest

from ackq.errors import PermissionDeniedError, WriterNotFoundError
from ackq.v1 import publishing_pb2 as pb
from tests.eventually import eventually
from tests.fakes.raw_client import refused, refused_with
from tests.wire.access.conftest import add_user

FAR = 1 << 60
# A body of one byte with the routing key "orders".
ROW_BYTES = 7
OTHERS = {"permission": "the writer 'query', which is another user's"}


@pytest.fixture
def guarded(guarded):
    """A broker with queue `orders`, alice who may write it, eve who may not, and a reader."""
    for name, write in (("alice", "orders|x"), ("eve", "own")):
        guarded.tokens[name] = add_user(guarded.path, name, write=write, read="orders")
    guarded.add("reader", read="orders")
    with guarded.client("master") as master:
        master.declare("orders")
        master.declare("own")
    return guarded


def writers(client):
    """The writers with their users and last committed batches."""
    found = client.publishing.ListWriters(pb.ListWritersRequest()).writers
    return {each.writer: (each.user, each.batch_id if each.committed else None) for each in found}


def attack(client, stage_id, writer="query"):
    """Makes each call that could harm a writer; all are refused without naming its user."""
    said = [
        refused(client.commit, writer=writer, batch_id=FAR, target=target)[0]
        for target in ("", "columns", "queue/own", "no target")
    ]
    said.append(refused(client.commit, (stage_id, 1, ROW_BYTES), writer=writer)[0])
    said.append(
        refused(client.stage, stage_id=b"e" * 16, writer=writer, run_id="new", queue="own")[0]
    )
    abort = pb.AbortBatchRequest(writer=writer, stage_ids=[stage_id])
    said.append(refused(client.publishing.AbortBatch, abort)[0])
    assert {type(each) for each in said} == {PermissionDeniedError}
    assert not any("alice" in each.message for each in said)
    return said


def test_a_known_writer_that_never_committed(guarded):
    """A10, K3: other users can harm neither stages nor first batch of a writer, over a kill -9."""
    stage_id = b"1" * 16
    with guarded.client("alice") as alice:
        alice.stage([b"a"], stage_id=stage_id, writer="query", queue="orders", seal=(1, ROW_BYTES))
    for _ in range(2):
        with guarded.client("eve") as eve, guarded.client("reader") as reader:
            assert all(each.fields == OTHERS for each in attack(eve, stage_id))
            attack(reader, stage_id)
        guarded.broker.kill()
        guarded.broker.restart()
    with guarded.client("alice") as alice, guarded.client("master") as master:
        assert writers(master) == {"query": ("alice", None)}
        (batch,) = master.publishing.ListBatches(pb.ListBatchesRequest()).batches
        assert (batch.user, batch.rows) == ("alice", 1)
        done = alice.commit((stage_id, 1, ROW_BYTES), writer="query", target="queue/orders")
        assert (done.rows, done.repeated) == (1, False)
        assert alice.browse("orders")[0] == [b"a"]
    log = guarded.broker.log_file.read_text()
    assert '"reason": "the writer \'query\', which is another user\'s"' in log


def test_a_name_with_a_target_is_not_taken_by_who_may_not_write_there(guarded):
    """A10, K12: a writer's name needs write on the target in it, or on anything if it has none."""
    name = "txn/nightly/queue/orders"
    with guarded.client("alice") as alice, guarded.client("eve") as eve:
        for target in ("", "queue/own"):
            error = refused_with(
                PermissionDeniedError, eve.commit, writer=name, batch_id=FAR, target=target
            )
            assert error.fields == {"permission": "write on queue 'orders'"}
        assert not alice.commit(writer=name, batch_id=7, target="queue/orders").repeated
    with guarded.client("reader") as reader:
        error = refused_with(PermissionDeniedError, reader.commit, writer="any", batch_id=FAR)
        assert error.fields == {"permission": "write on any queue or exchange"}


def test_an_operator_gives_a_writer_to_another_user(guarded):
    """A10, A8: an operator assigns a writer to another user, who goes on; the former is refused."""
    with guarded.client("master") as master, guarded.client("alice") as alice:
        alice.commit(writer="query", target="columns")
        assign = master.publishing.AssignWriter
        assert assign(pb.AssignWriterRequest(writer="query", user="eve")).before == "alice"
        refused_with(WriterNotFoundError, assign, pb.AssignWriterRequest(writer="no", user="eve"))
        error = refused_with(PermissionDeniedError, alice.commit, writer="query", batch_id=1)
        assert error.fields == OTHERS
        assert writers(master) == {"query": ("eve", 0)}
    with guarded.client("eve") as eve:
        assert eve.commit(writer="query", target="columns").repeated
        assert not eve.commit(writer="query", batch_id=1, run_id="next", target="columns").repeated
    line = '"call": "PublishingService.AssignWriter", "user": "master"'
    eventually("the audit", lambda: line in guarded.broker.log_file.read_text())
