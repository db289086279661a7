"""Backups of a serving broker, and what is restored from them (O5, Q8)."""

import os
import shutil
import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

import ackq_broker
from ackq import errors
from ackq.client import Admin, Publisher, close_channels
from ackq_broker.journal.files.directory import segment_name
from tests.eventually import SOON_S, eventually
from tests.fakes.raw_client import Client
from tests.wire.cli.conftest import ackq_on
from tests.wire.operations.processes import run

BODY_BYTES = 20_000
ROWS = 200


@pytest.fixture
def broker(tmp_path):
    """A broker with small segments and a directory for backups."""
    sizes = {"ACKQ_BROKER_SEGMENT_SIZE": "16MiB", "ACKQ_BROKER_BACKUP_DIR": str(tmp_path / "b")}
    with ackq_broker.embedded(tmp_path / "data", env=sizes) as running:
        yield running
    close_channels()


class Load:
    """A publisher under load: each frame has one message that is kept, the rest is purged."""

    def __init__(self, endpoint):
        self.confirmed = 0
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        keys = ["kept"] + ["churn"] * ROWS
        filling = [bytes(BODY_BYTES)] * ROWS
        with Publisher(self._endpoint) as out, Admin(self._endpoint) as admin:
            number = 0
            while not self._stop.is_set():
                bodies = [b"%d" % number, *filling]
                out.publish_batch(pa.table({"body": bodies, "routing_key": keys}))
                out.flush()
                number += 1
                self.confirmed = number
                if number % 5 == 0:
                    admin.purge_queue("churn")


@contextmanager
def restored(backup, folder):
    """Runs a broker on a plain copy of a backup."""
    shutil.copytree(backup, folder)
    status, said, _ = run("verify", folder)
    assert (status, "0 flaws, 0 lost blocks: the journal opens" in said) == (0, True), said
    with ackq_broker.embedded(folder) as broker:
        yield broker
    close_channels()


def kept(endpoint):
    """The bodies of the messages that were kept."""
    with Client(endpoint) as client:
        return [int(body) for body in client.browse("kept")[0]]


def test_backups_under_load(broker, tmp_path):
    """O5, Q8: a backup under load has every message confirmed before it, and opens without a flaw.

    Meanwhile segments die, are reused and compacted; the broker keeps its history id.
    """
    made = []
    with Admin(broker.endpoint) as admin:
        for queue in ("kept", "churn"):
            admin.declare_queue(queue)
        history = admin.info().history_id
        with Load(broker.endpoint) as load:
            for number in range(5):
                least = 8 * (number + 1)
                eventually("load", lambda: load.confirmed > least, every_s=0.01)  # noqa: B023
                before = load.confirmed
                made.append((before, admin.backup(f"number-{number}")))
                assert load.confirmed >= before
        assert admin.info().history_id == history
        numbers = sorted(int(path.name[8:28]) for path in broker.data_dir.glob("journal-*.seg"))
    assert numbers[-1] > 8, "segments have died meanwhile"
    broker.kill()
    for number, (before, backup) in enumerate(made):
        assert backup.directory == str(tmp_path / "b" / f"number-{number}")
        with restored(backup.directory, tmp_path / f"restored-{number}") as copy:
            found = kept(copy.endpoint)
            assert found == list(range(len(found)))
            assert len(found) >= before
            with Admin(copy.endpoint) as admin:
                info = admin.info()
            assert (info.history_id != history, info.history_cause) == (True, "copied")


def test_a_kill_during_a_backup(tmp_path):
    """O5: after a kill during a backup the broker has all, and a backup can be made again."""
    environment = {"ACKQ_BROKER_BACKUP_DIR": str(tmp_path / "b")}
    failing = {**environment, "ACKQ_FAILPOINT": "before_rename_backup_directory"}
    with ackq_broker.embedded(tmp_path / "data", env=failing) as broker:
        with Client(broker.endpoint) as client:
            client.declare("kept")
            client.publish(b"0", queue="kept")
        with Admin(broker.endpoint) as admin, pytest.raises(errors.BrokerUnavailableError):
            admin.backup("one")
        assert broker.wait_dead(SOON_S)
        assert [path.name for path in (tmp_path / "b").iterdir()] == ["one.new"]
        broker.restart(environment)
        assert run("verify", tmp_path / "b" / "one.new")[0] == 0
        assert kept(broker.endpoint) == [0]
        with Admin(broker.endpoint) as admin:
            made = admin.backup("one")
        assert [path.name for path in (tmp_path / "b").iterdir()] == ["one"]
        with restored(made.directory, tmp_path / "restored") as copy:
            assert kept(copy.endpoint) == [0]
    close_channels()


@pytest.mark.parametrize("name", ["../out", "/etc/x", ".hidden", "a/b", "a.new", "", "x" * 101])
def test_a_client_names_a_backup_and_no_place(broker, tmp_path, name):
    """O5: a client gives a backup a name, not a path; without one it is named by the time."""
    with Admin(broker.endpoint) as admin:
        if name:
            with pytest.raises(errors.InvalidArgumentError, match="cannot have the name"):
                admin.backup(name)
            assert not (tmp_path / "b").exists()
        else:
            assert admin.backup(name).directory.startswith(f"{tmp_path / 'b'}{os.sep}2")


def test_the_command_and_its_refusals(broker, tmp_path):
    """O5: `broker backup` prints the place; an existing name is refused, with the remedy."""
    run_ackq = ackq_on(broker.endpoint)
    done = run_ackq("broker", "backup", "one")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"backup {tmp_path / 'b' / 'one'} up to record ")
    again = run_ackq("broker", "backup", "one")
    assert again.exit_code != 0
    assert "give the backup another name" in again.output
    (segment,) = (tmp_path / "b" / "one").glob("journal-*.seg")
    assert segment.name == segment_name(1)
