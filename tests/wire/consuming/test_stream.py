"""Channels over the wire, by raw stubs, against a real broker process."""

import pytest

from ackq import errors
from ackq.v1 import consuming_pb2 as pb
from tests.fakes.raw_client import TIMEOUT_S, refused_with

ACCEPTED, FAILED, REJECTED, RELEASED = 1, 2, 3, 4


def bodies(deliveries):
    return [delivery.body for delivery in deliveries]


def tags(deliveries):
    return [delivery.tag for delivery in deliveries]


def counts(client):
    """The accepted, ready and unacked messages of queue `q`."""
    info = client.queue()
    return info.accepted, info.ready, info.unacked


# --- opening ---


@pytest.mark.parametrize(
    "request_",
    [
        pb.ConsumeRequest(),
        pb.ConsumeRequest(settle=pb.Settle(delivery_tag=1)),
        pb.ConsumeRequest(open=pb.ChannelOpen(channel_id=b"short")),
    ],
)
def test_a_channel_begins_with_an_open(client, request_):
    """C1: the first request must open the channel, with an id of 16 bytes."""
    answers = client.consuming.Consume(iter([request_]), timeout=TIMEOUT_S)
    refused_with(errors.InvalidArgumentError, list, answers)


REFUSED = {
    "opened twice": {"open": pb.ChannelOpen(channel_id=bytes(16))},
    "no such queue": {"subscribe": pb.Subscribe(consumer="c", queue="none")},
    "a consumer without a name": {"subscribe": pb.Subscribe(queue="q")},
    "a long name": {"subscribe": pb.Subscribe(consumer="x" * 256, queue="q")},
    "a name twice": {"subscribe": pb.Subscribe(consumer="me", queue="q")},
    "a pull from no queue": {"get": pb.Get(queue="none", messages=1, number=1)},
    "no outcome": {"settle": pb.Settle(delivery_tag=1, number=1)},
    "an unknown outcome": {"settle": pb.Settle(delivery_tag=1, outcome=9)},
    "an ack of nothing delivered": {"transport_ack": pb.TransportAck(delivery_tag=2)},
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_requests_that_are_refused(client, wrong):
    """C1, C4, C11: what ends a channel: names, queues, outcomes and acks that are none."""
    client.publish(b"a")
    kind = errors.QueueNotFoundError if "queue" in wrong else errors.InvalidArgumentError
    with client.consume() as channel:
        channel.pull()
        channel.subscribe("me")
        channel.send(**REFUSED[wrong])
        assert type(channel.refusal()[0]) is kind


# --- deliveries and settlements ---


def test_runs_of_tags_are_settled_in_one_decision(client):
    """C15: one settlement may name runs of tags, also above an older unsettled message."""
    client.publish(*[b"%d" % n for n in range(20)])
    with client.consume() as channel:
        assert channel.opened.settle_runs
        channel.pull(20)
        channel.settled(channel.settle(0, first_tag=[2, 5, 9], rows=[1, 3, 10]), 14)
        channel.settled(channel.settle(0, RELEASED, first_tag=[4], rows=[1]))
        assert counts(client) == (14, 1, 5)
        channel.settled(channel.settle(20, multiple=True), 5)


@pytest.mark.parametrize(
    ("first_tag", "rows", "unknown"),
    [
        ([1, 3], [1, 2], 3),
        ([2, 4], [2, 2], 3),
        ([5], [4_000_000_000], 11),
        ([5, 1 << 62], [1, 1], 1 << 62),
        ([5, 1 << 63, (1 << 64) - 1], [1, 1, 1], 1 << 63),
        ([9, 12], [1, 1], 12),
    ],
)
def test_one_unknown_tag_in_runs_settles_none_of_them(client, first_tag, rows, unknown):
    """C2: one unknown tag in runs settles none of them; the lowest one is named.

    Earlier settlements take effect and are answered.
    """
    client.publish(*[b"%d" % n for n in range(10)])
    with client.consume() as channel:
        channel.pull(10)
        number = channel.settle(3)
        channel.settle(0, first_tag=first_tag, rows=rows)
        channel.settled(number)
        error, status = channel.refusal()
        assert (type(error), status) == (errors.UnknownDeliveryTagError, "FAILED_PRECONDITION")
        assert error.fields["delivery_tag"] == str(unknown)
        assert counts(client) == (1, 9, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"first_tag": [1, 3], "rows": [1]},
        {"first_tag": [1]},
        {"rows": [1]},
        {"first_tag": [3, 1], "rows": [1, 1]},
        {"first_tag": [1, 2], "rows": [2, 1]},
        {"first_tag": [1, 3], "rows": [1, 0]},
        {"first_tag": [0], "rows": [1]},
        {"first_tag": [(1 << 64) - 1], "rows": [2]},
        {"first_tag": [1], "rows": [1], "multiple": True},
        {"first_tag": [1], "rows": [1], "tag": 2},
    ],
)
def test_runs_that_are_none_are_refused(client, fields):
    """C2: invalid runs are refused: unequal lists, unordered, empty, over 64 bits, with a tag."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.pull(3)
        channel.settle(**{"tag": 0, **fields})
        assert type(channel.refusal()[0]) is errors.InvalidArgumentError
        assert client.queue().ready == 3


def test_the_most_runs_that_a_settlement_may_name(client):
    """I6: a settlement may name up to 4096 runs; more are refused."""
    client.publish(*[b"%d" % n for n in range(8193)])
    with client.consume() as channel:
        channel.pull(8193)
        channel.settled(channel.settle(0, first_tag=range(2, 8193, 2), rows=[1] * 4096), 4096)
        channel.settle(0, first_tag=range(1, 8194, 2), rows=[1] * 4097)
        assert type(channel.refusal()[0]) is errors.LimitError
        assert client.queue().ready == 4097


# --- transport window and resumption ---


def test_pulls_wait_for_the_transport_window(client):
    """C9, C11: a large pull goes on as transport acks open the window."""
    client.publish(*[b"%d" % n for n in range(9)])
    with client.consume(window_messages=4) as channel:
        channel.get(8)
        channel.deliveries(4)
        channel.transport_ack(4)
        assert tags(channel.deliveries(4)) == [5, 6, 7, 8]


def test_a_resumed_client_is_answered_again_however_late_it_asks(client):
    """C15: a transport ack on the newer stream does not cover answers of the older stream.

    The client may repeat its requests after that ack.
    """
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.subscribe(prefetch=1)
        channel.deliveries(1)
        channel.transport_ack(1)
        number = channel.settle(1)
        channel.settled(number)
        channel.deliveries(1)
        channel.get(9, number=3)
        assert channel.answer("get_empty").number == 3
        with client.resume(channel) as resumed:
            resumed.deliveries(1)
            client.publish(b"c")
            resumed.prefetch(2, "c")
            (newer,) = resumed.deliveries(1)
            resumed.transport_ack(newer.tag)
            resumed.quiet()
            resumed.settle(1, number=number)
            resumed.settled(number)
            resumed.get(9, number=3)
            assert resumed.answer("get_empty").number == 3


@pytest.mark.parametrize("declared", [False, True], ids=["gone", "declared again"])
def test_a_consumer_whose_queue_went_during_a_cut_is_cancelled(client, declared):
    """C11, Q1, Q4: a queue deleted during a cut ends its consumer alone, also if it is repeated.

    A cancelled consumer does not resume on a new queue of the same name.
    """
    client.publish(b"a")
    with client.consume() as channel:
        channel.pull()
        channel.subscribe("me")
        channel.quiet()
        client.delete(force=True)
        if declared:
            client.declare()
            client.publish(b"b")
        with client.resume(channel) as resumed:
            resumed.deliveries(1)
            assert resumed.answer("cancelled").consumer == "me"
            resumed.subscribe("me")
            assert resumed.answer("cancelled").consumer == "me"
            resumed.quiet()
            resumed.settled(resumed.settle(1))
            if declared:
                resumed.subscribe("you")
                assert bodies(resumed.deliveries(1)) == [b"b"]


def test_a_subscription_that_was_lost_with_its_queue_is_cancelled(client):
    """C11, Q4: also a subscription that the broker never received is answered as cancelled."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.pull()
        client.delete(force=True)
        with client.resume(channel) as resumed:
            resumed.deliveries(1)
            for _ in range(2):
                resumed.subscribe("me")
                cancelled = resumed.answer("cancelled")
                assert (cancelled.consumer, cancelled.reason.code) == ("me", "queue_not_found")
            resumed.quiet()
            resumed.settled(resumed.settle(1))
