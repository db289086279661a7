"""Writer batches over the wire, by raw stubs, against a real broker process."""

import secrets
import subprocess
import sys

import grpc
import pytest

from ackq import errors
from ackq.v1 import admin_pb2, publishing_pb2
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import (
    TIMEOUT_S,
    killed,
    refused,
    refused_with,
    refused_with_status,
    stage_requests,
)

# A body of one byte with the routing key "q".
SIZE = 2


def new_id():
    return secrets.token_bytes(16)


def test_a_stage_is_invisible_until_its_commit(client):
    """K3: staged rows are invisible until the commit, which shows them in its order of stages."""
    writer, one, two = secrets.token_hex(8), new_id(), new_id()
    answers = client.stage([b"a", b"b"], [b"c"], stage_id=one, writer=writer, seal=(3, 3 * SIZE))
    assert answers[-1].sealed == publishing_pb2.StageSealed(rows=3, payload_bytes=3 * SIZE)
    assert [answer.stored.rows for answer in answers[:-1]][-1] == 3
    client.stage([b"d"], stage_id=two, writer=writer, seal=(1, SIZE))
    assert (client.queue().ready, client.queue().staged) == (0, 4)
    done = client.commit((two, 1, SIZE), (one, 3, 3 * SIZE), writer=writer)
    assert (done.rows, done.repeated) == (4, False)
    assert client.browse()[0] == [b"d", b"a", b"b", b"c"]
    assert client.queue().staged == 0


def test_a_repeated_commit_is_answered_from_the_record(client):
    """K3: a repeated batch gets the recorded result, and writes nothing."""
    writer, stage = secrets.token_hex(8), new_id()
    client.stage([b"a"], stage_id=stage, writer=writer, seal=(1, SIZE))
    client.commit((stage, 1, SIZE), writer=writer)
    again = new_id()
    client.stage([b"a"], stage_id=again, writer=writer, seal=(1, SIZE))
    done = client.commit((again, 1, SIZE), writer=writer)
    assert (done.rows, done.repeated) == (1, True)
    assert client.browse()[0] == [b"a"]
    assert client.queue().staged == 0


def test_a_version_used_twice_is_refused_in_every_run(broker, own):
    """K12: the runs of a version, each with the write that it repeats, survive a kill -9."""
    own.stage([b"a"], stage_id=(first := new_id()), seal=(1, SIZE))
    own.commit((first, 1, SIZE), execution_id="7")
    assert own.commit((first, 1, SIZE), run_id="next", execution_id="1").repeated is True
    with killed(broker) as again:
        for run_id, execution_id in (("next", "2"), ("r", "8")):
            refused_with(
                errors.BatchOrderError, again.commit, run_id=run_id, execution_id=execution_id
            )
        assert again.commit(run_id="next", execution_id="1").repeated is True


def test_a_copy_of_a_checkpoint_is_refused(broker, own):
    """K3: a batch's record survives a kill -9, and a different batch with its id is refused."""
    own.stage([b"a"], stage_id=(first := new_id()), seal=(1, SIZE))
    own.commit((first, 1, SIZE), target="queue/q")
    own.stage([b"b"], stage_id=(other := new_id()), run_id="copy", seal=(1, SIZE))
    with killed(broker) as again:
        reference = (other, 1, SIZE)
        told = refused_with(
            errors.BatchChangedError, again.commit, reference, run_id="copy", target="queue/p"
        )
        assert "1 row for queue/q by run r" in str(told)
        assert "1 row for queue/p by run copy" in str(told)
        assert again.commit((first, 1, SIZE), target="queue/q").repeated
        kept = {"run_id": "copy", "target": "queue/p", "keep_changed": True}
        assert again.commit(reference, **kept).target == "queue/q"
        assert (again.browse()[0], again.queue().staged) == ([b"a"], 0)


def test_a_replay_into_a_full_queue(client):
    """K3: a repeated batch needs no room in a full queue, and is answered from the record."""
    client.delete()
    client.declare(max_length=1)
    writer = secrets.token_hex(8)
    for repeated in (False, True):
        stage = new_id()
        client.stage([b"a"], stage_id=stage, writer=writer, seal=(1, SIZE))
        assert client.commit((stage, 1, SIZE), writer=writer).repeated is repeated
    assert client.browse()[0] == [b"a"]


def test_a_lower_batch_is_refused(client):
    """K3: a batch below the last committed one is an error."""
    writer, stage = secrets.token_hex(8), new_id()
    client.stage([b"a"], stage_id=stage, writer=writer, batch_id=5, seal=(1, SIZE))
    client.commit((stage, 1, SIZE), writer=writer, batch_id=5)
    error, status = refused(client.commit, writer=writer, batch_id=4)
    assert (type(error), status) == (errors.BatchOrderError, "FAILED_PRECONDITION")


def test_a_stage_without_a_seal_leaves_nothing(client):
    """K3: an upload that ends without a seal is dropped, and the writer gets an error."""
    writer, stage = secrets.token_hex(8), new_id()
    refused_with(errors.InvalidArgumentError, client.stage, [b"a"], stage_id=stage, writer=writer)
    assert client.queue().staged == 0
    error, _ = refused(client.commit, (stage, 1, SIZE), writer=writer)
    assert type(error) is errors.StageMismatchError


def test_a_cut_upload_leaves_nothing(client):
    """K3: the upload of a killed task, which ends without warning, is dropped."""
    writer, stage = secrets.token_hex(8), new_id()

    def requests():
        row = {"rows": 1}, encoded(body=[b"a"], routing_key="q")
        yield from stage_requests(row, stage_id=stage, writer=writer, run_id="r")
        call.cancel()

    call = client.publishing.Stage(requests(), timeout=TIMEOUT_S)
    with pytest.raises(grpc.RpcError):
        list(call)
    error, _ = refused(client.commit, (stage, 1, SIZE), writer=writer)
    assert type(error) is errors.StageMismatchError


@pytest.mark.parametrize("counts", [(2, 2 * SIZE), (1, SIZE + 1)])
def test_a_commit_with_other_counts_shows_nothing(client, counts):
    """K3: a stage with fewer rows or bytes than the commit says makes the whole commit void."""
    writer, one, two = secrets.token_hex(8), new_id(), new_id()
    client.stage([b"a"], stage_id=one, writer=writer, seal=(1, SIZE))
    client.stage([b"b"], stage_id=two, writer=writer, seal=(1, SIZE))
    error, status = refused(client.commit, (one, 1, SIZE), (two, *counts), writer=writer)
    assert (type(error), status) == (errors.StageMismatchError, "FAILED_PRECONDITION")
    assert client.queue().ready == 0


def test_a_seal_with_other_counts_is_refused(client):
    """K3: a seal whose counts differ from the received rows and bytes is refused."""
    writer = secrets.token_hex(8)
    error, _ = refused(client.stage, [b"a"], stage_id=new_id(), writer=writer, seal=(2, SIZE))
    assert type(error) is errors.StageMismatchError
    assert client.queue().staged == 0


def test_an_unroutable_row_refuses_a_mandatory_stage(client):
    """K3, P7: an unroutable row refuses a mandatory stage with the reason."""
    client.admin.DeleteQueue(admin_pb2.DeleteQueueRequest(queue="q"))
    writer = secrets.token_hex(8)
    error, _ = refused(
        client.stage, [b"a"], stage_id=new_id(), writer=writer, seal=(1, SIZE), mandatory=True
    )
    assert type(error) is errors.UnroutableError


def test_abort_drops_stages_and_never_uncommits(client):
    """K3: an abort drops the named stages and never uncommits; the batch may be written again."""
    writer, lost, won = secrets.token_hex(8), new_id(), new_id()
    client.stage([b"a"], stage_id=lost, writer=writer, seal=(1, SIZE))
    request = publishing_pb2.AbortBatchRequest(writer=writer, batch_id=0, stage_ids=[lost])
    assert client.publishing.AbortBatch(request, timeout=TIMEOUT_S).dropped == 1
    assert client.queue().staged == 0
    client.stage([b"b"], stage_id=won, writer=writer, seal=(1, SIZE))
    client.commit((won, 1, SIZE), writer=writer)
    request = publishing_pb2.AbortBatchRequest(writer=writer, batch_id=0, stage_ids=[won])
    client.publishing.AbortBatch(request, timeout=TIMEOUT_S)
    assert client.browse()[0] == [b"b"]


def test_sealed_stages_and_committed_batches_survive_a_kill(broker, own):
    """K3, Q7: after `kill -9` a sealed stage can be committed, and a committed one is recorded."""
    one, two = new_id(), new_id()
    own.stage([b"a"], stage_id=one, seal=(1, SIZE))
    own.commit((one, 1, SIZE))
    own.stage([b"b"], stage_id=two, batch_id=1, seal=(1, SIZE))
    with killed(broker) as again:
        assert again.commit((one, 1, SIZE)).repeated is True
        assert again.commit((two, 1, SIZE), batch_id=1).rows == 1
        assert again.browse()[0] == [b"a", b"b"]


@pytest.mark.parametrize("opening", [{"stage_id": b"short"}, {"stage_id": bytes(16), "writer": ""}])
def test_openings_that_are_refused(client, opening):
    """K3: a stage needs an id of 16 random bytes, and a writer."""
    refused_with(errors.InvalidArgumentError, client.stage, seal=(0, 0), **opening)


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
        assert (batch.writer, batch.rows, batch.open_stages, batch.single) == (
            *("write/1", 3),
            *(0, True),
        )
        assert admin.drop_batch(batch.writer, batch.batch_id).rows == 3
        again.publish(b"d")
    with killed(broker) as again:
        assert (again.queue().ready, again.queue().staged) == (1, 0)
        assert admin.batches() == []


def test_a_batch_whose_queue_was_deleted_is_refused(client):
    """K3, Q4: a commit of rows for a deleted queue is refused; the next run routes them again."""
    writer, stage, again = secrets.token_hex(8), new_id(), new_id()
    client.stage([b"a"], stage_id=stage, writer=writer, seal=(1, SIZE))
    client.delete(force=True)
    client.declare()
    refused_with_status(
        *(errors.StageMismatchError, "FAILED_PRECONDITION"),
        *(client.commit, (stage, 1, SIZE)),
        writer=writer,
    )
    client.stage([b"a"], stage_id=again, writer=writer, run_id="next", seal=(1, SIZE))
    assert client.commit((again, 1, SIZE), writer=writer, run_id="next").rows == 1
    assert client.browse()[0] == [b"a"]


def test_a_forgotten_writer_is_refused_for_good(broker, own, admin):
    """K3, Q7: a forgotten writer's commits are refused for good, also after a restart."""
    own.stage([b"a"], stage_id=(stage := new_id()), seal=(1, SIZE))
    own.commit((stage, 1, SIZE))
    assert admin.forget_writer("w", force=True)
    with killed(broker) as again:
        refused_with_status(
            *(errors.WriterForgottenError, "FAILED_PRECONDITION"),
            *(again.commit, (stage, 1, SIZE)),
        )
        assert again.browse()[0] == [b"a"]
