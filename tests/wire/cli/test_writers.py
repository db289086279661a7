"""`ackq batch` and `ackq writer` against a real broker: what writers hold, and freeing it."""

import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

from ackq.cli.failure import ExitStatus
from ackq.client import StageWriter, commit_batch
from ackq.errors import StageMismatchError, WriterForgottenError
from ackq.v1 import publishing_pb2 as pb
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, Client
from tests.wire.cli.conftest import failed, read


@pytest.fixture
def staged(endpoint, admin, request):
    """A queue with room for two rows, which a staged batch of a writer of the same name holds."""
    name = request.node.name
    admin.declare_queue(name, max_length=2)
    with StageWriter(endpoint, writer=name, batch_id=7, run_id="run", label="partition 0") as out:
        out.write(pa.record_batch({"body": [b"a", b"b"]}), routing_key=name)
        yield name, out.seal()
    admin.delete_queue(name, force=True)


def test_a_batch_is_listed_and_shown(run, staged):
    """K3: `batch list` and `show` print writer, room, age, queues, and stages with their tasks."""
    name, sealed = staged
    (listed,) = read(run("batch", "list", "--queue", name, "--json"))
    targets = [{"queue": name, "rows": 2, "payload_bytes": sealed.payload_bytes, "deleted": False}]
    age_ms = listed.pop("age_ms")
    assert 0 <= age_ms < 60_000
    assert listed == {
        "writer": name,
        "batch_id": 7,
        "run_id": "run",
        "stages": 1,
        "open_stages": 0,
        "rows": 2,
        "payload_bytes": sealed.payload_bytes,
        "committed": False,
        "targets": targets,
        "target_count": 1,
        "details": [],
        "single": False,
        "user": "",
    }
    header, *lines = run("batch", "list").stdout.splitlines()
    assert header.split() == [
        "WRITER",
        "BATCH",
        "STATE",
        "STAGES",
        "ROWS",
        "BYTES",
        "AGE",
        "USER",
        "QUEUES",
    ]
    (line,) = [line.split() for line in lines if name in line]
    assert line[:5] == [name, "7", "sealed", "1", "2"]
    shown = read(run("batch", "show", name, "7", "--json"))
    assert [each["stage_id"] for each in shown["details"]] == [sealed.stage_id.hex()]
    lines = run("batch", "show", name, "7").stdout.splitlines()
    assert ["state", "sealed"] in [line.split() for line in lines]
    assert lines[-1].split()[0] == sealed.stage_id.hex()
    assert lines[-1].endswith("partition 0")


def test_a_dropped_batch_gives_its_room_back(run, staged, endpoint):
    """K3, Q3: a full queue names the batch that fills it; once dropped, its commit is refused."""
    name, sealed = staged
    refused = failed(run("publish", name, input="c\n"), ExitStatus.NOT_CONFIRMED)
    assert f"first by batch 7 of writer '{name}'" in refused
    assert f"`ackq batch list --queue {name}`, then `ackq batch drop`" in refused
    size = sealed.payload_bytes
    assert run("batch", "drop", name, "7").stdout == (
        f"batch 7 of writer '{name}' dropped: stages=1 rows=2 bytes={size}\n"
    )
    assert run("publish", name, input="c\n").exit_code == 0
    with pytest.raises(StageMismatchError, match="`ackq batch drop`"):
        commit_batch(endpoint, writer=name, batch_id=7, run_id="run", stages=[sealed])
    assert f"Nothing is staged of batch 7 of writer '{name}'" in failed(
        run("batch", "drop", name, "7"), ExitStatus.NOT_FOUND
    )


@contextmanager
def writing(endpoint, queue, writer):
    """A stage of a task that is still writing; one row of it is on the broker's disk."""
    ended = threading.Event()

    def requests():
        opening = pb.StageOpen(stage_id=b"o" * 16, writer=writer, run_id="r")
        yield pb.StageRequest(header=pb.StageHeader(open=opening))
        yield pb.StageRequest(
            header=pb.StageHeader(data=pb.StageData(rows=1)),
            block=encoded(body=[b"x"], routing_key=queue),
        )
        ended.wait()

    with Client(endpoint) as client:
        call = client.publishing.Stage(requests(), timeout=TIMEOUT_S)
        assert next(call).stored.rows == 1
        yield
        ended.set()
        call.cancel()


def test_a_batch_that_is_being_written_is_dropped_by_force(run, endpoint, admin, request):
    """K3: dropping a batch that a task still writes needs --force."""
    name = request.node.name
    admin.declare_queue(name)
    with writing(endpoint, name, name):
        (line,) = [x.split() for x in run("batch", "list").stdout.splitlines() if name in x]
        assert line[2] == "open"
        assert "it is being written by 1 task now" in failed(run("batch", "drop", name, "0"))
        dropped = read(run("batch", "drop", name, "0", "--force", "--json"))
        assert (dropped["writer"], dropped["stages"], dropped["rows"]) == (name, 1, 1)
        assert admin.queue(name).staged == 0


def test_a_writer_is_listed_and_forgotten(run, staged, endpoint):
    """K3: `writer list` shows the last commit; a forgotten writer's commits are refused."""
    name, sealed = staged
    commit = {"writer": name, "batch_id": 7, "run_id": "run", "stages": [sealed]}
    assert "it has 1 stage" in failed(run("writer", "forget", name))
    commit_batch(endpoint, **commit)
    (listed,) = [each for each in read(run("writer", "list", "--json")) if each["writer"] == name]
    assert (listed["committed"], listed["batch_id"], listed["rows"], listed["stages"]) == (
        *(True, 7),
        *(2, 0),
    )
    lines = run("writer", "list").stdout.splitlines()
    assert [name, "7", "2", "0"] in [line.split()[:4] for line in lines]
    assert read(run("writer", "list", "--idle", "1d", "--json")) == []
    assert "within the last day" in failed(run("writer", "forget", name))
    assert run("writer", "forget", name, "--force").stdout == f"writer '{name}' forgotten\n"
    again = read(run("writer", "forget", name, "--json"))
    assert again == [{"writer": name, "forgotten": False}]
    with pytest.raises(WriterForgottenError, match="new checkpoint"):
        commit_batch(endpoint, **commit)


def test_a_writer_is_given_to_a_user(run, endpoint, request):
    """A10: `writer assign` gives a writer without user to one, and it is listed as that user's."""
    name = request.node.name
    commit_batch(endpoint, writer=name, batch_id=0, run_id="run", stages=[])
    assert run("writer", "assign", name, "--to", "alice").stdout == (
        f"writer '{name}' given to user 'alice', belonged to no user\n"
    )
    again = read(run("writer", "assign", name, "--to", "bob", "--json"))
    assert again == [{"writer": name, "user": "bob", "before": "alice"}]
    (listed,) = read(run("writer", "list", "--user", "bob", "--json"))
    assert (listed["writer"], listed["user"]) == (name, "bob")
    (line,) = run("writer", "list", "--user", "bob").stdout.splitlines()[1:]
    assert line.split()[-1] == "bob"
    refused = run("writer", "assign", name, "--to", "a b")
    assert "A user's name has" in failed(refused, ExitStatus.USAGE)
