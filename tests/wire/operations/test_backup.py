"""Backups of a serving broker, and what is restored from them (O5, Q8)."""

import itertools
import os
import shutil
from contextlib import contextmanager

import pytest

import ackq_broker
from ackq import errors
from ackq.client import Admin, close_channels
from ackq_broker.journal.files.directory import segment_name
from tests.eventually import SOON_S, eventually, meanwhile
from tests.fakes.raw_client import Client
from tests.wire.churn import publish_among
from tests.wire.cli.conftest import ackq_on
from tests.wire.operations.processes import run


@contextmanager
def load(endpoint):
    """Publishes messages that are kept, among others that are purged; yields the confirmed ones."""
    confirmed = []

    def publish(ended):
        with Admin(endpoint) as admin:
            for number in itertools.takewhile(lambda _: not ended.is_set(), itertools.count()):
                publish_among(endpoint, b"%d" % number)
                confirmed.append(number)
                if number % 5 == 4:
                    admin.purge_queue("churn")

    with meanwhile(publish):
        yield confirmed


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
        return [int(body) for body in client.browse("orders")[0]]


def test_backups_under_load(churning, tmp_path):
    """O5, Q8: a backup under load has every message confirmed before it, and opens without a flaw.

    Meanwhile segments die, are reused and compacted; the broker keeps its history id.
    """
    made = []
    with Admin(churning.endpoint) as admin:
        admin.declare_queue("orders")
        history = admin.info().history_id
        with load(churning.endpoint) as confirmed:
            for number in range(5):
                least = 8 * (number + 1)
                eventually("load", lambda x=least: len(confirmed) > x, every_s=0.01)
                made.append((len(confirmed), admin.backup(f"number-{number}")))
        assert admin.info().history_id == history
    numbers = sorted(int(path.name[8:28]) for path in churning.data_dir.glob("journal-*.seg"))
    assert numbers[-1] > 8, "segments have died meanwhile"
    churning.kill()
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
            client.declare("orders")
            client.publish(b"0", queue="orders")
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


def test_a_client_names_a_backup_and_no_place(churning, tmp_path):
    """O5: a client gives a backup a name, not a path; without one it is named by the time.

    `broker backup` prints the place; an existing name is refused, with the remedy.
    """
    place = tmp_path / "b"
    with Admin(churning.endpoint) as admin:
        for name in ("../out", "/etc/x", ".hidden", "a/b", "a.new", "x" * 101):
            with pytest.raises(errors.InvalidArgumentError, match="cannot have the name"):
                admin.backup(name)
        assert not place.exists()
        assert admin.backup("").directory.startswith(f"{place}{os.sep}2")
    run_ackq = ackq_on(churning.endpoint)
    done = run_ackq("broker", "backup", "one")
    assert done.output.startswith(f"backup {place / 'one'} up to record ")
    again = run_ackq("broker", "backup", "one")
    assert (done.exit_code, again.exit_code != 0) == (0, True)
    assert "give the backup another name" in again.output
    (segment,) = (place / "one").glob("journal-*.seg")
    assert segment.name == segment_name(1)
