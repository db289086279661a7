"""Publishing clients and the reference broker, also over restarts: P4, P7, P8, P10, S2, S3, K3."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client import (
    Committed,
    Publisher,
    Session,
    StageWriter,
    TransactionalPublisher,
    commit_batch,
    holder,
)
from ackq.v1 import sessions_pb2
from ackq.wire import columns
from ackq_broker.engine import recovery
from ackq_broker.service.blocks import ingest
from tests.eventually import SOON_S, equals, eventually
from tests.unit.client.publishing.scripts import KINDS

BOTH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture
def admin(admin):
    admin.declare_queue("orders")
    return admin


def bodies(admin, queue="orders"):
    return pa.Table.from_batches(admin.browse(queue, columns=["body"]))["body"].to_pylist()


@BOTH
def test_killed_broker_loses_and_doubles_nothing(broker, admin, kind):
    """P4, P10: over a SIGKILL in mid-publish every message is confirmed, stored once, in order."""
    answered = threading.Event()
    with kind(broker.endpoint, routing_key="orders", window_messages=500) as out:
        futures = [out.publish(f"{at}") for at in range(400)]
        futures[0].add_done_callback(lambda _: answered.set())
        assert answered.wait(SOON_S)
        broker.kill()
        futures += [out.publish(f"{at}") for at in range(400, 450)]
        broker.restart()
        futures += [out.publish(f"{at}") for at in range(450, 2000)]
    assert [each.result().number for each in futures] == list(range(1, 2001))
    assert bodies(admin) == [b"%d" % at for at in range(2000)]


@BOTH
def test_a_queue_that_does_not_exist_fails_its_publish(broker, admin, kind):
    """P7: a publish to a missing queue fails, unless not mandatory; other messages are stored."""
    out = kind(broker.endpoint, routing_key="orders")
    lost, kept = out.publish(b"lost", routing_key="order"), out.publish(b"kept")
    dropped = out.publish(b"dropped", routing_key="order", mandatory=False)
    with pytest.raises(errors.UnroutableError, match=r"routing keys is 'order'\.") as failure:
        lost.result(SOON_S)
    assert failure.value.fields["routing_key"] == "order"
    assert [each.result(SOON_S).number for each in (kept, dropped)] == [2, 3]
    with pytest.raises(errors.UnroutableError):
        out.close()
    assert bodies(admin) == [b"kept"]


@pytest.mark.parametrize("lost", ["cut", "killed"])
@pytest.mark.parametrize("heard", [False, True])
def test_returns_that_were_lost_with_the_answer_to_a_commit(broker, admin, relay_to, lost, heard):
    """P7, P13: returns lost with a commit's answer are reported later, also after a kill."""
    relay = relay_to(broker.endpoint)
    returned = []
    on_return = returned.append if heard else None
    with (
        TransactionalPublisher(
            relay.endpoint, routing_key="orders", mandatory=True, on_return=on_return
        ) as out,
        ThreadPoolExecutor(1) as pool,
    ):
        out.publish("opens the stream")
        assert out.commit(SOON_S) == Committed(1)
        relay.hold("to_client")
        out.publish("good")
        out.publish("unroutable", routing_key="nowhere")
        committed = pool.submit(out.commit, SOON_S)
        eventually("the commit", lambda: admin.queue("orders").ready, equals(2))
        admin.declare_queue("later")  # durable, so everything decided before is on disk
        if lost == "killed":
            broker.kill()
            broker.restart()
        relay.cut()
        relay.release()
        relay.heal()
        if heard:
            assert committed.result(SOON_S) == Committed(2, 1)
            (only,) = returned
            assert only.numbers == (3,)
            assert only.messages.column("body").to_pylist() == [b"unroutable"]
        else:
            with pytest.raises(errors.UnroutableError, match=r"in no queue \(1 of 2\)"):
                committed.result(SOON_S)
    assert bodies(admin) == [b"opens the stream", b"good"]


def test_killed_broker_commits_all_or_nothing(broker, admin):
    """P13: over SIGKILLs each transaction is stored whole and once; those that raise are rerun."""
    with TransactionalPublisher(broker.endpoint, routing_key="orders") as out:
        for at in range(60):
            if at % 20 == 10:
                out.publish_batch(pa.table({"body": [bytes(1000)] * 2000}))  # in flight
                broker.kill()
                broker.restart()
                out.rollback()
            if at % 20 == 15:
                killer = threading.Thread(target=lambda: (broker.kill(), broker.restart()))
                killer.start()
            while True:
                try:
                    with out.transaction():
                        out.publish(f"{at}-a")
                        out.publish(f"{at}-b")
                    break
                except errors.TransactionRolledBackError:
                    continue
            if at % 20 == 15:
                killer.join()
    assert bodies(admin) == [b"%d-%c" % (at, part) for at in range(60) for part in b"ab"]
    assert admin.queue("orders").staged == 0


def test_transactions_of_any_size(broker, admin):
    """P13: a transaction may exceed the broker's buffer, and span several frames."""
    table = pa.table({"body": [b"%d" % at for at in range(50_000)]})
    with TransactionalPublisher(broker.endpoint, routing_key="orders") as out:
        with out.transaction():
            assert out.publish_batch(table) == 50_000
        out.publish_batch(table)
        out.rollback()
        with out.transaction():
            out.publish("last")
    assert bodies(admin) == [b"%d" % at for at in range(50_000)] + [b"last"]


def test_a_frame_to_more_queues_than_one_decision_takes(broker, admin):
    """I6, P4, P13, K3: confirmed, committed, rolled back and staged whole, though in parts."""
    names = [f"many-{number}" for number in range(ingest.PART_KEYS["direct"] + 100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(admin.declare_queue, names))
    batch = pa.record_batch({"body": [name.encode() for name in names], "routing_key": names})
    with Publisher(broker.endpoint, mandatory=True) as publisher:
        assert publisher.publish_batch(batch).result(SOON_S) == len(names)
    with TransactionalPublisher(broker.endpoint, mandatory=True) as publisher:
        publisher.publish_batch(batch)
        publisher.rollback()
        publisher.publish_batch(batch)
        publisher.commit(SOON_S)
    written = {"writer": "w", "batch_id": 0, "run_id": "r"}
    with StageWriter(broker.endpoint, **written) as stage:
        stage.write(batch)
        sealed = stage.seal()
    commit_batch(broker.endpoint, **written, stages=[sealed])
    assert {info.queue: info.ready for info in admin.queues() if info.queue != "orders"} == (
        dict.fromkeys(names, 3)
    )
    for name in (names[0], names[-1]):
        assert bodies(admin, name) == [name.encode()] * 3


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("kind", "finish"),
    [(Publisher, Publisher.flush), (TransactionalPublisher, TransactionalPublisher.commit)],
)
def test_closed_publishers_are_not_remembered(broker, kind, finish):
    """P10, I6: closed publishers leave no state; one that was cut is kept, and can come back."""
    for number in range(50):
        with kind(broker.endpoint, routing_key="orders") as out:
            out.publish(b"%d" % number)
            finish(out)
    cut = kind(broker.endpoint, routing_key="orders")
    cut.publish(b"cut")
    finish(cut)
    cut_id = cut._stream._publisher_id
    cut._stream.abandon()
    cut._stream.join()
    broker.kill()

    async def remembered():
        async with recovery.offline(broker.data_dir) as recovered:
            return list(recovered.engine.core._state.publishers)

    assert asyncio.run(remembered()) == [cut_id]


def test_delivery_mode_and_ttl_of_a_message(broker, admin):
    """P12, Q3: each message may have its own delivery mode and TTL, with either publisher."""
    with Publisher(broker.endpoint, routing_key="orders", persistent=False) as out:
        out.publish("kept", persistent=True, ttl_ms=3_600_000)
        out.publish("lost")
    with TransactionalPublisher(broker.endpoint, routing_key="orders") as out, out.transaction():
        out.publish("kept too")
        out.publish("lost too", persistent=False, ttl_ms=3_600_000)
    (batch,) = admin.browse("orders", columns=["body", "persistent", "expires_at"])
    found = [(row["persistent"], row["expires_at"] is not None) for row in batch.to_pylist()]
    assert found == [(True, True), (False, False), (True, False), (False, True)]
    broker.restart()
    assert bodies(admin) == [b"kept", b"kept too"]


@pytest.mark.parametrize("us", [1 << 62, -(1 << 62), limits.MAX_PUBLISHED_AT_US + 1])
def test_a_publish_time_that_no_reader_can_show(broker, admin, us):
    """P8, I6: a message with an invalid publish time is nacked alone, with the reason."""
    times = [limits.MIN_PUBLISHED_AT_US, us, limits.MAX_PUBLISHED_AT_US]
    rows = pa.table(
        {
            "body": [b"first", b"odd", b"last"],
            "published_at": pa.array(times, pa.int64()).cast(columns.TIMESTAMP),
        }
    )
    out = Publisher(broker.endpoint, routing_key="orders")
    out.publish_batch(rows)
    with pytest.raises(errors.InvalidArgumentError, match="publish time of"):
        out.close()
    (batch,) = admin.browse("orders", columns=["body", "published_at"])
    assert [row["body"] for row in batch.to_pylist()] == [b"first", b"last"]


def test_fetch_outlives_a_killed_broker(broker, admin, own):
    """S2: a fetch cut by a broker's kill goes on with the same rows from the same tag."""
    with Publisher(broker.endpoint, routing_key="orders") as out:
        out.publish_batch(pa.table({"body": [bytes(1000)] * 20_000}))
    incarnation, leased = own.open(holder(), queues=["orders"])
    request = sessions_pb2.FetchRequest(
        session="s", incarnation=incarnation, epoch=leased.epoch, last_tag=leased.end_tag
    )
    batches = Session(broker.endpoint).fetch(request, ["delivery_tag", "redelivered"])
    tags = next(batches).column(0).to_pylist()
    broker.kill()
    broker.restart()
    for batch in batches:
        tags += batch.column(0).to_pylist()
        assert not any(batch.column(1).to_pylist())
    assert tags == list(range(1, 20_001))
    assert admin.queue("orders").unacked == 20_000
