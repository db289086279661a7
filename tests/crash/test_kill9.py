"""kill -9 of real processes at the worst moments; every message then arrives once."""

import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ackq.client import Admin, Publisher, TransactionalPublisher
from ackq.errors import TransactionRolledBackError, UnroutableError
from tests.crash.consuming import AROUND_THE_SYNC
from tests.crash.harness import SPARK_TIMEOUT_S, ids, in_queue, messages, spark_process
from tests.eventually import SOON_S, eventually
from tests.fakes.relay import Relay

pytestmark = pytest.mark.crash

BATCH_WRITE = Path(__file__).with_name("batch_write.py")


def once(names):
    """The counter in which every id occurs once."""
    return Counter(names)


def test_broker_killed_in_mid_publish(broker):
    """Q7, P4, P10: a broker killed while publishes are in flight loses and doubles none of them."""
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("in")
    names = ids(1, 6000)
    with Publisher(broker.endpoint, routing_key="in", mandatory=True) as publisher:
        answers = []
        for number, start in enumerate(range(0, len(names), 20)):
            answers.append(publisher.publish_batch(messages(names[start : start + 20])))
            if number in {30, 120, 250}:
                answers[number - 5].result(SOON_S)
                broker.kill()
                broker.restart()
        publisher.flush(SOON_S)
        assert [answer.result(0) for answer in answers] == [20] * len(answers)
    assert in_queue(broker.endpoint, "in") == once(names)


@pytest.mark.parametrize("point", AROUND_THE_SYNC)
def test_broker_killed_around_the_sync(tmp_path, point):
    """Q7, P10: a broker killed at a named point of the group commit has every message once."""
    from ackq_broker import embedded

    names = ids(1, 400)
    deaths = 0
    with embedded(data=tmp_path / "data", env={"ACKQ_FAILPOINT": f"{point}:12"}) as broker:
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("in")
        with Publisher(broker.endpoint, routing_key="in") as publisher:
            for start in range(0, len(names), 10):
                # One group of the journal for each: the next is published after this one's answer.
                answer = publisher.publish_batch(messages(names[start : start + 10]))
                while not wait([answer], timeout=0.05).done:
                    if not broker.alive():
                        deaths += 1
                        broker.restart(env={})
                assert answer.result(0) == 10
        assert deaths == 1
        assert in_queue(broker.endpoint, "in") == once(names)


@pytest.mark.parametrize("sync", [4, 5])
def test_broker_killed_after_the_sync_of_a_commit(tmp_path, sync):
    """P7, P13: an unroutable message is returned, though its answers died with the broker.

    The syncs: the start, the queue, the publisher's open, the rows, the commit. Rows and commit may
    share one; if they do not, a broker that died between them has rolled back, and they are
    published again.
    """
    from ackq_broker import embedded

    failpoint = {"ACKQ_FAILPOINT": f"after_sync_data_segment:{sync}"}
    with (
        embedded(data=tmp_path / "data", env=failpoint) as broker,
        closing(Relay(broker.endpoint)) as relay,
        TransactionalPublisher(relay.endpoint, mandatory=True, window_messages=1) as publisher,
        ThreadPoolExecutor(1) as pool,
    ):
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("in")
        publisher.publish_batch(messages(ids(1, 1)), routing_key="in")
        publisher.publish("waits for the open stream", routing_key="in")
        publisher.rollback()

        def transact():
            publisher.publish("good", routing_key="in")
            publisher.publish("unroutable", routing_key="nowhere")
            publisher.commit(SOON_S)

        told = []
        relay.hold("to_client")
        for _ in range(3):
            answer = pool.submit(transact)
            if not broker.wait_dead(1):
                relay.release()
                eventually("an end", lambda: answer.done() or not broker.alive())  # noqa: B023
            if not broker.alive():
                broker.restart(env={})
                relay.cut()
                relay.heal()
            relay.release()
            error = answer.exception(SOON_S)
            if isinstance(error, TransactionRolledBackError):
                publisher.rollback()
            else:
                assert isinstance(error, UnroutableError)
                told.append(error.fields["returned"])
        assert told
        assert told == ["1"] * in_queue(broker.endpoint, "in").total()


@pytest.mark.spark
def test_batch_write_killed_between_its_tasks(broker, admin, tmp_path):
    """K3, Q3: a killed write's stage is listed and dropped; the write can be repeated at once."""
    admin.declare_queue("q", max_length=4)
    with batch_write(broker.endpoint, tmp_path, "--hang") as process:
        pause = threading.Event()
        while not (staged := admin.batches("q")) or staged[0].open_stages:
            assert process.poll() is None, (tmp_path / "log").read_text()
            pause.wait(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (batch,) = admin.batches()
    assert (batch.rows, batch.single, admin.queue("q").staged) == (2, True, 2)
    assert admin.drop_batch(batch.writer, batch.batch_id).rows == 2
    with batch_write(broker.endpoint, tmp_path) as process:
        assert process.wait(SPARK_TIMEOUT_S) == 0, (tmp_path / "log").read_text()
    (rows,) = admin.browse("q", columns=["body"])
    assert rows.column(0).to_pylist() == [b"0", b"1", b"2", b"3"]
    assert (admin.batches(), admin.queue("q").staged) == ([], 0)


@contextmanager
def batch_write(endpoint, folder, *flags):
    """The program of a batch write, in a process group of its own, which is ended at exit."""
    arguments = [str(BATCH_WRITE), endpoint, *flags]
    process = spark_process(arguments, folder / "log", folder, cwd=folder)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
