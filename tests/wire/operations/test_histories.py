"""Restored or repaired journals, with real brokers and operators' commands (Q8)."""

import json
import shutil

import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Admin, Channel, Publisher, StageWriter, commit_batch
from tests.eventually import SOON_S
from tests.wire.cli.conftest import ackq_on
from tests.wire.links.accepting import Accepting
from tests.wire.operations.processes import flip, run


class Query:
    """A query that reads `q`, and writes to `out` as writer `w`."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.admin = Admin(endpoint)
        self.batch_id = 0
        self._accepting = Accepting(endpoint)
        self.read()

    def read(self):
        """Reads the next batch, which accepts the previous lease."""
        self._accepting.step(2)

    def write(self):
        """Writes a batch of one row."""
        batch = {"writer": "w", "batch_id": self.batch_id, "run_id": "r"}
        with StageWriter(self.endpoint, **batch) as writer:
            writer.write(pa.record_batch({"body": [b"row"]}), routing_key="out")
            stage = writer.seal()
        commit_batch(self.endpoint, **batch, stages=[stage])
        self.batch_id += 1


@pytest.fixture
def broker(broker, admin):
    for queue in ("q", "out"):
        admin.declare_queue(queue)
    return broker


@pytest.fixture
def query(broker):
    with Publisher(broker.endpoint, routing_key="q") as filling:
        for number in range(6):
            filling.publish(b"body %d" % number).result(SOON_S)
    query = Query(broker.endpoint)
    query.write()
    return query


def restore(broker, *, changed):
    """Restores the data directory from a copy made before `changed` was called."""
    copy = broker.data_dir.with_name("copy")
    broker.kill()
    shutil.copytree(broker.data_dir, copy)
    broker.restart()
    changed()
    broker.kill()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(copy, broker.data_dir)
    broker.restart()


def test_restored_from_a_copy(broker, query):
    """Q8: after a restore older clients are refused until an operator accepts, new ones served."""
    publisher = Publisher(broker.endpoint, routing_key="q")
    publisher.publish(b"before").result(SOON_S)
    history = query.admin.info().history_id

    restore(broker, changed=query.read)

    info = query.admin.info()
    assert (info.history_cause, info.held_back) == ("copied", 3)
    assert info.history_id != history
    for use in (query.read, query.write):
        with pytest.raises(errors.HistoryChangedError, match="ackq broker accept-history") as told:
            use()
        assert told.value.fields["history"] == history
    for use in (
        lambda: publisher.publish(b"after").result(SOON_S),
        lambda: publisher.close(SOON_S),
    ):
        with pytest.raises(errors.HistoryChangedError):
            use()
    with Publisher(broker.endpoint, routing_key="q") as new:
        new.publish(b"new").result(SOON_S)
    with Channel(broker.endpoint) as channel:
        assert [each.body for each in channel.get("q", 2)] == [b"body 2", b"body 3"]

    done = ackq_on(broker.endpoint)("broker", "accept-history")
    assert done.output == (
        f"history {info.history_id} accepted: publishers=1 sessions=1 writers=1 links=0 may go on\n"
    )
    query.write()
    assert query.admin.info().held_back == 0


def test_a_live_publisher_goes_on_in_an_accepted_history(broker):
    """Q8, P10: a publisher goes on whose new history was accepted before it reconnected."""
    with Publisher(broker.endpoint, routing_key="q") as publisher:
        publisher.publish(b"before").result(SOON_S)
        broker.kill()
        assert run("new-history", "--data", broker.data_dir)[0] == 0
        status, out, _ = run("accept-history", "--data", broker.data_dir)
        assert (status, out.partition(" accepted: ")[2]) == (
            0,
            "publishers=1 sessions=0 writers=0 links=0 may go on\n",
        )
        broker.restart()
        publisher.publish(b"after").result(SOON_S)
    info = Admin(broker.endpoint).info()
    assert (info.history_cause, info.held_back) == ("declared", 0)


def test_operators_of_a_directory_in_use_or_of_none(broker, tmp_path):
    """Q8: history commands refuse a directory in use, and do not create a missing one."""
    for command in ("new-history", "accept-history"):
        status, _, err = run(command, "--data", broker.data_dir)
        assert (status, f"in use by process {broker.pid}" in err) == (2, True)
        status, _, err = run(command, "--data", tmp_path / "none")
        assert (status, "there is no data directory" in err) == (2, True)
    assert not (tmp_path / "none").exists()


def test_the_rest_of_a_repaired_queue_is_delivered(broker, query):
    """Q7, Q8: messages lost in a repair leave their queue and are counted; others are delivered."""
    publisher = Publisher(broker.endpoint, routing_key="q")
    publisher.publish(b"last").result(SOON_S)
    history = query.admin.info().history_id
    broker.kill()
    flip(broker.data_dir, b"body 1", b"body 4")
    with pytest.raises(errors.BrokerUnavailableError, match="ackq-broker repair --keep-damaged"):
        broker.restart()
    status, out, _ = run("repair", "--keep-damaged", broker.data_dir)
    assert status == 0
    assert "2 blocks lost" in out
    assert "dropped: 2 messages of queue 'q'\n" in out
    assert "refused from now on: publishers=1 sessions=1 writers=1 links=0, until 'ackq-b" in out
    assert run("verify", broker.data_dir)[0] == 0

    broker.restart()

    assert query.admin.info().history_id != history
    with pytest.raises(errors.HistoryChangedError, match="it was damaged and repaired"):
        query.read()
    found = query.admin.queue("q")
    assert (found.ready, found.unacked, found.dropped) == (4, 1, 2)
    for use in (lambda: publisher.publish(b"more").result(SOON_S), lambda: publisher.close(SOON_S)):
        with pytest.raises((errors.HistoryChangedError, errors.OutcomeUnknownError)):
            use()
    query.admin.accept_history()
    query.read()
    with Channel(broker.endpoint) as channel:
        assert [each.body for each in channel.get("q", 9)] == [b"body 5", b"last"]


def test_a_stage_with_a_lost_block_has_to_be_written_again(broker, query):
    """K3, Q8: a stage with a lost block cannot be committed, so its batch runs again."""
    batch = {"writer": "v", "batch_id": 0, "run_id": "r"}
    with StageWriter(broker.endpoint, **batch) as writer:
        writer.write(pa.record_batch({"body": [b"staged row"]}), routing_key="out")
        stage = writer.seal()
    query.write()  # a damaged last group would be a torn tail
    broker.kill()
    flip(broker.data_dir, b"staged row")
    _, out, _ = run("repair", "--delete-damaged", broker.data_dir)
    assert "dropped: 1 stage: run their batches again" in out
    run("accept-history", "--data", broker.data_dir)
    broker.restart()
    with pytest.raises(errors.StageMismatchError, match="does not exist"):
        commit_batch(broker.endpoint, **batch, stages=[stage])


def test_lost_messages_go_at_the_next_start_too(broker, query):
    """Q8: lost messages are dropped at the next start if the process died after the repair."""
    from ackq_broker.journal import repair

    broker.kill()
    flip(broker.data_dir, b"body 3")
    repair(broker.data_dir)
    assert len(json.loads((broker.data_dir / "FORMAT").read_text())["lost_blocks"]) == 1
    broker.restart()
    assert query.admin.queue("q").dropped == 1
    assert "1 messages of queue 'q' were in damaged blocks" in broker.log_file.read_text()
    assert json.loads((broker.data_dir / "FORMAT").read_text())["lost_blocks"] == []
