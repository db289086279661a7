"""A data directory of an earlier version opens with everything that was answered (Q7, Q8).

`golden` has one of each format, all with the same content. Format 1 is by the broker of commit
07b1bf2, format 2, with a segment that was written over a dead one, by `golden_journal.py`, which
makes the next one as well. They end with a SIGKILL. The machine's clock was set to the year 2100,
so that no retention runs out in the meantime: this broker's time stands still at that.
"""

import json
import shutil
from itertools import zip_longest
from pathlib import Path

import pytest

from ackq.errors import BatchOrderError
from ackq.v1 import admin_pb2, publishing_pb2
from ackq_broker import embedded
from ackq_broker.journal.files.format import FORMAT_VERSION, SegmentHeader
from tests.fakes.blocks import rows
from tests.fakes.raw_client import TIMEOUT_S, Client, holder, killed, refused_with

GOLDEN = Path(__file__).with_name("golden")
READER = holder(token=b"h" * 16)
TRANSACTION = publishing_pb2.PUBLISH_MODE_TRANSACTION
# A body of two bytes with the routing key "out".
ROW_BYTES = 5


@pytest.fixture(params=sorted(path.name for path in GOLDEN.iterdir()))
def broker(tmp_path, request):
    """Today's broker on a copy, whose history is new until an operator accepts it."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "data")
    with embedded(tmp_path / "data") as running:
        with Client(running.endpoint) as client:
            info = client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S)
            assert (info.history_cause, info.held_back) == ("copied", 4)
            accepted = client.admin.AcceptHistory(
                admin_pb2.AcceptHistoryRequest(), timeout=TIMEOUT_S
            )
            assert (accepted.publishers, accepted.sessions, accepted.writers) == (2, 1, 1)
        yield running


@pytest.fixture
def old(broker):
    with Client(broker.endpoint) as client:
        yield client


def counts(client, name):
    info = client.queue(name)
    return info.ready, info.unacked, info.staged, info.accepted, info.dead_lettered


def test_there_is_one_of_each_format():
    """I2: there is a golden journal of each format, so that later versions are tested with it."""
    formats = [json.loads((path / "FORMAT").read_text())["format"] for path in GOLDEN.iterdir()]
    assert sorted(formats) == list(range(1, FORMAT_VERSION + 1))
    segments = [path.read_bytes() for path in GOLDEN.glob("format-2/*.seg")]
    assert any(SegmentHeader.unpack(each).reused for each in segments)


def test_queues_and_their_messages(old):
    """P4, Q1, Q7, Q8: queues keep properties and counters; messages bodies, headers and order."""
    found = {name: counts(old, name) for name in ("q", "work", "dead", "leased", "out")}
    assert found == {
        "q": (6, 0, 0, 0, 0),
        "work": (2, 0, 0, 1, 1),
        "dead": (1, 0, 0, 0, 0),
        "leased": (1, 2, 0, 2, 0),
        "out": (2, 0, 2, 0, 0),
    }
    properties = old.queue("work").properties
    assert (properties.dead_letter_queue, properties.delivery_limit) == ("dead", 3)
    assert old.queue("out").properties.max_length == 100
    rest = [(body, None) for body in rest_of_q()]
    assert browsed(old, "q") == [(b"one", [("tenant", "blue")]), *rest]


def rest_of_q():
    return [b"two", b"t1", b"three", b"t2", b"t3"]


def browsed(client, queue):
    """The bodies of a queue's messages with their headers."""
    frames = client.admin.Browse(admin_pb2.BrowseRequest(queue=queue), timeout=TIMEOUT_S)
    found = [rows(frame.block) for frame in frames]
    return [
        (body, headers or None)
        for each in found
        for body, headers in zip_longest(each["body"], each.get("headers", ()))
    ]


def test_settlements_of_a_channel(old):
    """C4, C7, C13: settlements stay: accepted removed, rejected dead-lettered, others counted."""
    ((_, headers),) = browsed(old, "dead")
    assert dict(headers)["ackq-dead-reason"] == "not json"
    with old.consume() as channel:
        channel.get(2, queue="work")
        found = [(delivery.body, delivery.count) for delivery in channel.deliveries(2)]
    # One settled as FAILED and pulled again, one delivered when the first channel closed.
    assert found == [(b"w3", 4), (b"w4", 2)]


def test_a_session_goes_on_with_its_lease(old):
    """S1, S2, S4: a session has the same tags and rows, and its accept leases the next ones."""
    info = old.session()
    assert (info.floor_tag, info.end_tag, info.query_id, info.batch_id) == (2, 4, "query", 7)
    calls = {"incarnation": info.incarnation, "queues": ["leased"]}
    lease = old.advance(READER, **calls, start_tag=2)
    assert (lease.epoch, lease.end_tag) == (info.epoch, 4)
    assert old.fetch(lease, 2, 4)[0] == [b"l3", b"l4"]
    following = old.advance(READER, **calls, start_tag=4)
    assert old.fetch(following, 4, 5)[0] == [b"l5"]
    assert counts(old, "leased") == (0, 1, 0, 4, 0)


def test_a_publisher_doubles_nothing(old):
    """P10, Q2: a confirmed number is known after the restart; the next uses the old binding."""
    with old.publisher(b"p" * 16, resume=True) as stream:
        stream.publish(12, b"three", b"four", routing_key="a.b", exchange="x", lowest=12)
        assert stream.confirmed(2, 12) == {12, 13}
    assert old.browse()[0] == [b"one", *rest_of_q(), b"four"]


def test_a_commit_is_answered_from_the_record(old):
    """P13: a commit repeated after a restart is answered from the record, and not done again."""
    asked = publishing_pb2.PublishTransaction(transaction_id=b"2" * 16, messages=2)
    with old.publisher(b"t" * 16, mode=TRANSACTION, resume=True) as stream:
        stream.send(publishing_pb2.PublishHeader(commit=asked))
        assert stream.answer().transaction.repeated
    assert old.queue().ready == 6


def test_a_writer_goes_on_with_its_stage(broker, old):
    """K3: committed batches are known, and a sealed stage can be committed and survives a kill."""
    refused_with(BatchOrderError, old.commit, batch_id=0)
    for batch_id, repeated in ((1, True), (2, False)):  # of as many rows
        stage = (b"%d" % batch_id * 16, batch_id, batch_id * ROW_BYTES)
        done = old.commit(stage, batch_id=batch_id)
        assert (done.rows, done.repeated) == (batch_id, repeated)
    with killed(broker) as again:
        assert again.browse("out")[0] == [b"b0", b"b1", b"b2", b"b3"]
