"""Makes a golden journal: `python -m tests.wire.operations.golden_journal FOLDER`.

Run it once for each format of the data directory, and never again: later versions must read what
an older one wrote. Each has the same content, which `test_golden.py` expects. It is written in
segments of 6 KiB, some of them over dead ones, with a clean shutdown in the middle (its snapshot)
and a SIGKILL at its end. The broker's clock is in the year 2100, so that no retention runs out
in the meantime.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from ackq.v1 import admin_pb2, publishing_pb2
from ackq_broker import embedded
from ackq_broker.journal.files.format import SegmentHeader
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, Client, holder

# A broker with small segments and the clock of 2100.
CHANGE = """
import time
from ackq_broker import server
from ackq_broker.engine.clock import BrokerClock

began, serve = time.time_ns(), server.serve
in_2100_ns = 4_102_488_000 * 1_000_000_000
_, *others = BrokerClock.__init__.__defaults__[1:]
BrokerClock.__init__.__defaults__ = (0, lambda: time.time_ns() - began + in_2100_ns, *others)
server.serve = lambda options, *more: serve(options._replace(segment_bytes=6 * 1024), *more)
"""
ROW_BYTES = 5
ACCEPTED, FAILED, REJECTED = 1, 2, 3
TRANSACTION = publishing_pb2.PUBLISH_MODE_TRANSACTION
READER = holder(token=b"h" * 16)


def publish(stream, first, *bodies, key, **options):
    """Publishes messages and waits for their confirms."""
    stream.publish(first, *bodies, routing_key=key, lowest=first, **options)
    assert stream.confirmed(len(bodies), first) == set(range(first, first + len(bodies)))


def commit(stream, transaction_id, first, *bodies):
    """Commits a transaction to `q`."""
    block = encoded(body=list(bodies), routing_key="q")
    stream.send_data(first, len(bodies), block, transaction_id=transaction_id)
    asked = publishing_pb2.PublishTransaction(transaction_id=transaction_id, messages=len(bodies))
    stream.send(publishing_pb2.PublishHeader(commit=asked))
    assert not stream.answer().transaction.repeated


def churn(client, directory):
    """Publishes and purges messages until a segment was written over a dead one."""

    def reused():
        with client.publisher() as stream:
            publish(stream, 1, *[bytes(500)] * 8, key="churn")
            # No state of this publisher remains.
            stream.send(publishing_pb2.PublishHeader(close=publishing_pb2.PublishClose()))
            stream.half_close()
            assert list(stream.call) == []
        client.admin.PurgeQueue(admin_pb2.PurgeQueueRequest(queue="churn"), timeout=TIMEOUT_S)
        return any(
            SegmentHeader.unpack(path.read_bytes()).reused
            for path in directory.glob("journal-*.seg")
        )

    client.declare("churn")
    # An idle broker deletes dead segments, which become spares.
    eventually("a spare", lambda: [*directory.glob("journal-*.seg.new")], within_s=120)
    eventually("a reused segment", reused, within_s=120)
    client.delete("churn")


def first_life(client):
    """Makes the content that the snapshot has."""
    client.declare("q")
    client.declare("dead")
    client.declare("work", dead_letter_queue="dead", delivery_limit=3)
    client.declare("leased")
    client.declare("out", max_length=100)
    kind = admin_pb2.EXCHANGE_TYPE_TOPIC
    client.admin.DeclareExchange(
        admin_pb2.DeclareExchangeRequest(exchange="x", type=kind, durable=True), timeout=TIMEOUT_S
    )
    client.admin.Bind(
        admin_pb2.BindRequest(exchange="x", queue="q", binding_key="a.*"), timeout=TIMEOUT_S
    )
    with client.publisher(b"p" * 16) as stream:
        publish(stream, 1, b"one", key="q", headers=[[("tenant", "blue")]])
        publish(stream, 2, b"two", key="q")
        publish(stream, 3, b"w1", b"w2", b"w3", b"w4", key="work")
        publish(stream, 7, b"l1", b"l2", b"l3", b"l4", b"l5", key="leased")
    with client.publisher(b"t" * 16, mode=TRANSACTION) as stream:
        commit(stream, b"1" * 16, 1, b"t1")
    with client.consume() as channel:
        channel.get(3, queue="work")
        assert [each.body for each in channel.deliveries(3)] == [b"w1", b"w2", b"w3"]
        channel.settled(channel.settle(1, ACCEPTED))
        channel.settled(channel.settle(2, REJECTED, reason="not json"))
        channel.settled(channel.settle(3, FAILED))
        channel.get(2, queue="work", number=2)
        assert [each.body for each in channel.deliveries(2)] == [b"w3", b"w4"]
    eventually("the requeue", lambda: not client.queue("work").unacked)
    opening = {"queues": ["leased"], "max_messages": 2}
    incarnation = client.advance(READER, **opening).incarnation
    client.advance(READER, incarnation=incarnation, **opening)
    client.advance(READER, incarnation=incarnation, start_tag=2, **opening)
    client.stage([b"b0"], stage_id=b"0" * 16, seal=(1, ROW_BYTES), queue="out")
    client.commit((b"0" * 16, 1, ROW_BYTES), batch_id=0)


def second_life(client):
    """Makes the content that only the log after the snapshot has."""
    with client.publisher(b"p" * 16, resume=True) as stream:
        publish(stream, 12, b"three", key="a.b", exchange="x")
    with client.publisher(b"t" * 16, mode=TRANSACTION, resume=True) as stream:
        commit(stream, b"2" * 16, 2, b"t2", b"t3")
    with client.consume() as channel:
        channel.get(1, queue="work")
        assert [each.body for each in channel.deliveries(1)] == [b"w3"]
    eventually("the requeue", lambda: not client.queue("work").unacked)
    info = client.session()
    fields = {"queues": ["leased"], "incarnation": info.incarnation, "start_tag": 2}
    lease = client.advance(READER, **fields)
    client.fetch(lease, 2, 4, query_id="query", batch_id=7, run_id="run")
    client.stage([b"b1"], stage_id=b"1" * 16, batch_id=1, seal=(1, ROW_BYTES), queue="out")
    client.commit((b"1" * 16, 1, ROW_BYTES), batch_id=1)
    rows = ([b"b2", b"b3"], b"2" * 16, 2)
    client.stage(rows[0], stage_id=rows[1], batch_id=2, seal=(2, 2 * ROW_BYTES), queue="out")


def make(folder):
    """Makes the journal in a folder that does not exist yet."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary, "data")
        env = machine.with_change(Path(temporary, "change"), CHANGE)
        with embedded(directory, env=env) as broker:
            with Client(broker.endpoint) as client:
                first_life(client)
                churn(client, directory)
            broker.restart()
            with Client(broker.endpoint) as client:
                second_life(client)
            broker.kill()
        (directory / "LOCK").unlink()
        for path in directory.glob("*.new"):
            path.unlink()
        shutil.copytree(directory, folder)


if __name__ == "__main__":
    (FOLDER,) = sys.argv[1:]
    make(Path(FOLDER))
    print(*sorted(path.name for path in Path(FOLDER).iterdir()), sep="\n")
