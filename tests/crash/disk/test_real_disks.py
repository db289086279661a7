"""Faults of real file systems under a broker process: see `tests.crash.disk.volumes`."""

import shutil
import threading
import time
from collections import Counter
from concurrent.futures import wait
from contextlib import suppress

import pytest

from ackq.client import Admin, Channel, Publisher
from ackq.errors import BrokerUnavailableError, DamagedError, DiskFullError, QueueNotFoundError
from ackq_broker import embedded
from ackq_broker.journal import dump
from ackq_broker.journal.files.directory import segment_name
from tests.crash import harness
from tests.crash.disk import volumes
from tests.crash.disk.failpoints import environment
from tests.crash.disk.power_loss import FAILED, crash
from tests.crash.disk.volumes import MIB, Volume, drop_cache
from tests.crash.harness import ids, in_queue, messages
from tests.eventually import SOON_S, eventually
from tests.fakes.raw_client import Client, refused_with
from tests.wire.links.accepting import COLUMNS, Accepting, rows_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

CUTS = 2
# Batches before the device fails, and messages in the block that it cannot read.
SOUND, OLD = 5, 12
# Three times the reserve of a broker with small files.
SMALL_BYTES = 5 * MIB


@pytest.fixture(scope="module", autouse=True)
def permitted(tmp_path_factory):
    volumes.require(tmp_path_factory.mktemp("permitted"))


def test_what_was_answered_outlives_power_cuts(tmp_path):
    """I1, P4, P8, P10, Q7: a power cut drops unsynced data; the broker meets EIO, and ends."""
    seed = time.time_ns() % 1_000_000
    print("seed", seed)

    wrong, ledger = crash(tmp_path, seed, CUTS)

    assert wrong == [], f"seed {seed}: {dict(ledger.figures)}"
    assert ledger.figures["cut"] == CUTS
    assert "Input/output error" in (tmp_path / "volume" / "data.log").read_text()
    assert ledger.figures["accepted done"] > 0


def test_the_cut_takes_what_was_not_synced(tmp_path):
    """I1: a broker that does not sync loses confirmed messages: the test above can fail."""
    names = ids(1, 100)
    with (
        Volume(tmp_path) as volume,
        embedded(volume.mount_point, sync=False, env=environment(tmp_path)) as broker,
    ):
        harness.fill(broker.endpoint, "in", names)
        volume.cut_power(broker.pid)
        broker.kill()
        volume.mount_again()
        try:
            broker.restart()
            left = in_queue(broker.endpoint, "in")
        except (BrokerUnavailableError, QueueNotFoundError):
            left = Counter()
        assert left != Counter(names)


def test_a_device_that_fails_ends_the_broker(tmp_path):
    """P8, P10, I2: after a failed sync no message is confirmed, and none is lost or doubled.

    Confirmed messages are on disk when it works again, and unconfirmed ones are published again,
    once.
    """
    names = ids(1, 400)
    with (
        Volume(tmp_path) as volume,
        embedded(volume.mount_point, env=environment(tmp_path)) as broker,
        Publisher(broker.endpoint, routing_key="in", retry_total_ms=SOON_S * 1000) as publisher,
    ):
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("in")
        answers = []
        while not answers or answers[-1].done():
            start = 20 * len(answers)
            answers.append(publisher.publish_batch(messages(names[start : start + 20], 1000)))
            while not wait(answers[-1:], timeout=0.1).done and broker.alive():
                pass
            if len(answers) == SOUND:
                volume.fail(max(volume.mount_point.glob("journal-*.seg")))
        assert broker._child.returncode == FAILED
        assert ", in sync_" in broker.log_file.read_text()
        assert "Input/output error" in broker.log_file.read_text()
        volume.work_again()
        volume.mount_again()
        broker.restart()
        assert [answer.result(SOON_S) for answer in answers] == [20] * len(answers)
        assert in_queue(broker.endpoint, "in") == Counter(names[: 20 * len(answers)])


def test_a_sector_that_cannot_be_read(tmp_path):
    """Q5, Q7: a reader learns the damaged file and byte, and gets the rows once it reads again."""
    old = [b"%020000d" % number for number in range(OLD)]
    with (
        Volume(tmp_path) as volume,
        embedded(volume.mount_point, env=environment(tmp_path)) as broker,
        Client(broker.endpoint) as client,
    ):
        client.declare()
        client.declare("new")
        client.publish(*old)
        client.publish(b"new", queue="new")
        # From here on nothing is written.
        eventually("rest", lambda: " 0 records" in list(dump(volume.mount_point))[-1])
        segment = volume.mount_point / segment_name(1)
        drop_cache(segment)
        volume.fail(segment)
        error = refused_with(DamagedError, client.browse)
        assert "the disk cannot read block 1: " in str(error)
        assert error.fields["segment"] == str(segment)
        volume.work_again()
        assert client.browse()[0] == old
        assert client.browse("new")[0] == [b"new"]


def test_a_disk_that_others_fill(tmp_path):
    """P8, P14: a disk at the reserve blocks publishers only; a full one delays answers, once each.

    At the reserve, draining goes on; without a free byte the journal waits for room.
    """
    data = tmp_path / "data"
    filler = data / "lost+found"
    with (
        volumes.tmpfs(data, SMALL_BYTES),
        embedded(data, env=environment(tmp_path)) as broker,
        Publisher(broker.endpoint, routing_key="in", retry_total_ms=SOON_S * 1000) as out,
    ):
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("in")
        answers = fill_to_the_reserve(out)
        fill(filler)
        with Channel(broker.endpoint) as channel:
            churn(channel, broker.log_file)
            assert broker.alive()
            filler.unlink()
            log = broker.log_file.read_text
            eventually("room", log, lambda text: "has room on the disk again" in text)
        with Channel(broker.endpoint) as channel:
            taken = drain(channel)
            confirmed = [names for names, answer in answers if answer.exception(SOON_S) is None]
            taken += drain(channel)
        assert taken == Counter(name for names in confirmed for name in names)
        assert len(answers) - len(confirmed) <= 1
        if len(confirmed) < len(answers):
            # A publish that was on its way when the broker checked the disk is refused, not
            # blocked.
            with pytest.raises(DiskFullError):
                out.flush()


def test_retention_gives_way_to_publishers(tmp_path):
    """S13, P8: 20 MiB are accepted and retained on a disk of 10, and no publisher is blocked."""
    data = tmp_path / "data"
    with (
        volumes.tmpfs(data, 2 * SMALL_BYTES),
        embedded(data, env=environment(tmp_path)) as broker,
        Publisher(broker.endpoint, routing_key="in") as out,
        Admin(broker.endpoint) as admin,
    ):
        admin.declare_queue("in")
        read = Accepting(broker.endpoint, "in", retain_bytes=1 << 40)
        log = broker.log_file.read_text
        while len(read.rows) * 1000 < 4 * SMALL_BYTES:
            # The broker looks at its disk once a second.
            free = lambda: shutil.disk_usage(data).free  # noqa: E731
            eventually("room", free, lambda room: room > 2 * MIB)
            first = len(read.rows) + 1
            out.publish_batch(messages(ids(first, first + 99), 1000)).result(SOON_S)
            read.step()
        assert "can no longer be read" in log()
        assert "only serves requests that drain it" not in log()
        session, incarnation, after, last, rows = read.batches[-3]
        tags = {"first_tag": after + 1, "last_tag": last, "incarnation": incarnation}
        assert rows_of(admin.browse_lease(session, columns=COLUMNS, **tags)) == rows


def fill_to_the_reserve(out):
    """Publishes until a batch is not answered; the names and the answer of each batch.

    Slowly: the broker checks its disk once a second.
    """
    answers = []
    pause = threading.Event()
    while not answers or wait([answers[-1][1]], timeout=2).done:
        pause.wait(0.3)
        names = ids(20 * len(answers) + 1, 20 * len(answers) + 20)
        answers.append((names, out.publish_batch(messages(names, body_bytes=5_000))))
        assert len(answers) < SMALL_BYTES // 100_000
    return answers


def fill(path):
    """Writes a file that takes all free space."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def churn(channel, log):
    """Takes messages and requeues them until the journal has no room for that."""
    reasons = (str(number) * 1000 for number in range(10**6))
    while "waits for room on the disk" not in log.read_text():
        with suppress(BrokerUnavailableError, TimeoutError):
            for message in channel.get("in", 50, timeout_s=2):
                answer = message.fail(next(reasons))
            answer.result(2)


def drain(channel):
    """Accepts everything that is ready; returns the names."""
    taken = Counter()
    while got := channel.get("in", 100):
        taken.update(message.message_id for message in got)
        channel.acknowledge(got[-1]).result(SOON_S)
    return taken
