"""A broker process with a full disk: refusals, operations that go on, and its survival."""

import grpc
import pytest

import ackq_broker
from ackq.errors import DiskFullError
from ackq_broker.journal.files.directory import transient_name
from tests.eventually import eventually
from tests.fakes.raw_client import Client, holder, refused_with
from tests.wire.brokers import ackq as ackq_target

RELEASED = 4
STAGED, OTHER, KNOWN = b"s" * 16, b"o" * 16, b"k" * 16
# A body of a byte with the routing key "q".
ROW_BYTES = 2


def test_transient_messages_stay_in_memory(tmp_path):
    """P5, P14: transient messages without room on disk are confirmed and delivered from memory."""
    with ackq_broker.embedded(tmp_path / "data") as broker, Client(broker.endpoint) as client:
        client.declare()
        # The kernel refuses each write to that file, as a full disk does.
        (tmp_path / "data" / transient_name(1)).symlink_to("/dev/full")
        with client.publisher() as stream:
            for number in (1, 2, 3):
                stream.publish(number, b"%d" % number, routing_key="q", persistent=[False])
                assert stream.confirmed(1, number) == {number}
            stream.publish(4, b"4", routing_key="q")
            assert stream.confirmed(1, 4) == {4}
        assert client.browse()[0] == [b"1", b"2", b"3", b"4"]
        with client.consume() as channel:
            channel.subscribe()
            assert [each.body for each in channel.deliveries(4)] == [b"1", b"2", b"3", b"4"]
            channel.settled(channel.settle(4, multiple=True), 4)
        client.publish(b"5")


@pytest.fixture
def dialect(tmp_path):
    """A broker whose disk can be filled."""
    with ackq_target.target(tmp_path) as running:
        yield running


def opens(client, publisher_id, **opening):
    """Whether a publisher can be opened."""
    try:
        with client.publisher(publisher_id, **opening):
            return True
    except grpc.RpcError:
        return False


def test_the_reserve_is_kept(dialect):
    """P8, K3, S6: at the disk reserve new publishers, staged outcomes and commits are refused.

    Accepts and returning publishers are served.
    """
    reader = holder()
    with Client(dialect.endpoint) as client:
        client.declare()
        with client.publisher(KNOWN) as stream:
            stream.publish(1, b"a", b"b", routing_key="q")
            assert stream.confirmed(2) == {1, 2}
        incarnation, lease = client.open(reader)
        assert lease.end_tag == 2
        client.stage([b"c"], stage_id=STAGED, seal=(1, ROW_BYTES))
        dialect.disk_alarm(on=True)
        eventually("the alarm", lambda: not opens(client, OTHER))
        refused_with(DiskFullError, client.commit, (STAGED, 1, ROW_BYTES))
        refused_with(DiskFullError, client.stage_outcomes, OTHER, (RELEASED, [1], {}))
        assert opens(client, KNOWN, resume=True)
        accepted = client.advance(reader, incarnation=incarnation, start_tag=2)
        assert (accepted.end_tag, client.queue().accepted) == (2, 2)
        dialect.disk_alarm(on=False)
        eventually("the end of the alarm", lambda: opens(client, OTHER))
        assert client.commit((STAGED, 1, ROW_BYTES)).rows == 1
        assert client.browse()[0] == [b"c"]
