"""Writer batches over the wire, by raw stubs, against a real broker process."""

import secrets
import subprocess
import sys

import grpc
import pytest

from ackq import errors
from ackq.v1 import publishing_pb2
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import (
    TIMEOUT_S,
    error_of,
    killed,
    refused_with,
    refused_with_status,
    stage_requests,
)

# A body of one byte with the routing key "q".
SIZE = 2


@pytest.fixture
def writer():
    """The name of a writer of the test's own."""
    return secrets.token_hex(8)


def staged(client, *bodies, **fields):
    """Stages bodies of one byte as one frame; returns the stage as a commit names it."""
    stage = secrets.token_bytes(16), len(bodies), len(bodies) * SIZE
    client.stage(bodies, stage_id=stage[0], seal=stage[1:], **fields)
    return stage


def test_a_stage_is_invisible_until_its_commit(client, writer):
    """K3: staged rows are invisible until the commit, which shows them in its order of stages.

    A repeated batch gets the recorded result, and writes nothing.
    """
    one = secrets.token_bytes(16)
    answers = client.stage([b"a", b"b"], [b"c"], stage_id=one, writer=writer, seal=(3, 3 * SIZE))
    assert answers[-1].sealed == publishing_pb2.StageSealed(rows=3, payload_bytes=3 * SIZE)
    assert [answer.stored.rows for answer in answers[:-1]][-1] == 3
    two = staged(client, b"d", writer=writer)
    assert (client.queue().ready, client.queue().staged) == (0, 4)
    done = client.commit(two, (one, 3, 3 * SIZE), writer=writer)
    assert (done.rows, done.repeated) == (4, False)
    again = client.commit(staged(client, *[b"x"] * 4, writer=writer), writer=writer)
    assert (again.rows, again.repeated) == (4, True)
    assert client.browse()[0] == [b"d", b"a", b"b", b"c"]
    assert client.queue().staged == 0


def test_a_version_used_twice_is_refused_in_every_run(broker, own):
    """K12: the runs of a version, each with the write that it repeats, survive a kill -9."""
    first = staged(own, b"a")
    own.commit(first, execution_id="7")
    assert own.commit(first, run_id="next", execution_id="1").repeated is True
    with killed(broker) as again:
        for run_id, execution_id in (("next", "2"), ("r", "8")):
            refused_with(
                errors.BatchOrderError, again.commit, run_id=run_id, execution_id=execution_id
            )
        assert again.commit(run_id="next", execution_id="1").repeated is True


def test_a_copy_of_a_checkpoint_is_refused(broker, own):
    """K3: a batch's record survives a kill -9, and a different batch with its id is refused."""
    first = staged(own, b"a")
    own.commit(first, target="queue/q")
    other = staged(own, b"b", run_id="copy")
    copy = {"run_id": "copy", "target": "queue/p"}
    with killed(broker) as again:
        told = refused_with(errors.BatchChangedError, again.commit, other, **copy)
        assert "1 row for queue/q by run r" in str(told)
        assert "1 row for queue/p by run copy" in str(told)
        assert again.commit(first, target="queue/q").repeated
        assert again.commit(other, **copy, keep_changed=True).target == "queue/q"
        assert (again.browse()[0], again.queue().staged) == ([b"a"], 0)


def test_a_replay_into_a_full_queue(client, writer):
    """K3: a repeated batch needs no room in a full queue, and is answered from the record."""
    client.delete()
    client.declare(max_length=1)
    for repeated in (False, True):
        stage = staged(client, b"a", writer=writer)
        assert client.commit(stage, writer=writer).repeated is repeated
    assert client.browse()[0] == [b"a"]


@pytest.mark.parametrize("cut", [False, True], ids=["unsealed", "cut"])
def test_an_upload_that_does_not_end_leaves_nothing(client, writer, cut):
    """K3: an upload without a seal, or of a killed task, is dropped; the first gets an error."""
    stage_id = secrets.token_bytes(16)

    def requests():
        row = {"rows": 1}, encoded(body=[b"a"], routing_key="q")
        yield from stage_requests(row, stage_id=stage_id, writer=writer, run_id="r")
        if cut:
            call.cancel()

    call = client.publishing.Stage(requests(), timeout=TIMEOUT_S)
    with pytest.raises(grpc.RpcError) as ended:
        list(call)
    if not cut:
        assert type(error_of(ended.value)[0]) is errors.InvalidArgumentError
        assert client.queue().staged == 0
    stage = (stage_id, 1, SIZE)
    refused_with(errors.StageMismatchError, client.commit, stage, writer=writer)


@pytest.mark.parametrize("counts", [(2, 2 * SIZE), (1, SIZE + 1)])
def test_a_commit_with_other_counts_shows_nothing(client, writer, counts):
    """K3: a stage with fewer rows or bytes than the commit says makes the whole commit void."""
    one, two = (staged(client, body, writer=writer) for body in (b"a", b"b"))
    refused_with_status(
        *(errors.StageMismatchError, "FAILED_PRECONDITION"),
        *(client.commit, one, (two[0], *counts)),
        writer=writer,
    )
    assert client.queue().ready == 0


def test_abort_drops_stages_and_never_uncommits(client, writer):
    """K3: an abort drops the named stages and never uncommits; the batch may be written again."""

    def abort(stage):
        request = publishing_pb2.AbortBatchRequest(writer=writer, stage_ids=[stage[0]])
        return client.publishing.AbortBatch(request, timeout=TIMEOUT_S).dropped

    assert abort(staged(client, b"a", writer=writer)) == 1
    assert client.queue().staged == 0
    won = staged(client, b"b", writer=writer)
    client.commit(won, writer=writer)
    abort(won)
    assert client.browse()[0] == [b"b"]


def test_what_survives_a_kill(broker, own, admin):
    """K3, Q7: after `kill -9` a sealed stage can be committed, and a committed one is recorded.

    The commits of a forgotten writer are refused for good.
    """
    one, gone = staged(own, b"a"), staged(own, b"c", writer="gone")
    own.commit(one)
    own.commit(gone, writer="gone")
    two = staged(own, b"b", batch_id=1)
    assert admin.forget_writer("gone", force=True)
    with killed(broker) as again:
        assert again.commit(one).repeated is True
        assert again.commit(two, batch_id=1).rows == 1
        refused_with_status(
            *(errors.WriterForgottenError, "FAILED_PRECONDITION"),
            *(again.commit, gone),
            writer="gone",
        )
        assert again.browse()[0] == [b"a", b"c", b"b"]


# Stages three rows for queue `q` like the only task of a write without txnAppId, and waits.
STAGING = """
import sys, threading
import pyarrow as pa
from ackq.client import StageWriter

options = {"writer": "write/1", "batch_id": 0, "run_id": "run", "single": True}
with StageWriter(sys.argv[1], **options) as stage:
    stage.write(pa.record_batch({"body": [b"a", b"b", b"c"]}), routing_key="q")
    print(stage.seal().rows, flush=True)
    threading.Event().wait()
"""


def test_the_room_of_a_killed_write_is_given_back(broker, admin):
    """K3, Q3: after writer and broker were killed the staged batch is listed and can be dropped."""
    admin.declare_queue("q", max_length=3)
    with subprocess.Popen(
        [sys.executable, "-c", STAGING, broker.endpoint], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout.readline() == b"3\n"
        program.kill()
    with killed(broker) as again, again.publisher() as stream:
        stream.publish(1, b"d", routing_key="q")
        full = stream.answer().nack.reason.message
        assert "first by batch 0 of writer 'write/1'" in full
        (batch,) = admin.batches("q")
        found = (batch.writer, batch.rows, batch.open_stages, batch.single)
        assert found == ("write/1", 3, 0, True)
        assert admin.drop_batch(batch.writer, batch.batch_id).rows == 3
        again.publish(b"d")
    with killed(broker) as again:
        assert (again.queue().ready, again.queue().staged) == (1, 0)
        assert admin.batches() == []


def test_a_batch_whose_queue_was_deleted_is_refused(client, writer):
    """K3, Q4: a commit of rows for a deleted queue is refused; the next run routes them again."""
    stage = staged(client, b"a", writer=writer)
    client.delete(force=True)
    client.declare()
    refused_with_status(
        *(errors.StageMismatchError, "FAILED_PRECONDITION"),
        *(client.commit, stage),
        writer=writer,
    )
    following = {"writer": writer, "run_id": "next"}
    assert client.commit(staged(client, b"a", **following), **following).rows == 1
    assert client.browse()[0] == [b"a"]
