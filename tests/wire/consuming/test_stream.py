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


def unknown_tag(channel):
    """The error of a channel that an unknown tag ended."""
    error, status = channel.refusal()
    assert (type(error), status) == (errors.UnknownDeliveryTagError, "FAILED_PRECONDITION")
    return error


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


@pytest.mark.parametrize(
    ("requests", "kind"),
    [
        ([{"open": pb.ChannelOpen(channel_id=bytes(16))}], errors.InvalidArgumentError),
        ([{"subscribe": pb.Subscribe(consumer="c", queue="none")}], errors.QueueNotFoundError),
        ([{"subscribe": pb.Subscribe(queue="q")}], errors.InvalidArgumentError),
        ([{"subscribe": pb.Subscribe(consumer="x" * 256, queue="q")}], errors.InvalidArgumentError),
        ([{"subscribe": pb.Subscribe(consumer="c", queue="q")}] * 2, errors.InvalidArgumentError),
        ([{"settle": pb.Settle(delivery_tag=1, number=1)}], errors.InvalidArgumentError),
        ([{"settle": pb.Settle(delivery_tag=1, outcome=9)}], errors.InvalidArgumentError),
        ([{"transport_ack": pb.TransportAck(delivery_tag=2)}], errors.InvalidArgumentError),
    ],
    ids=[
        "opened twice",
        "no such queue",
        "a consumer without a name",
        "a long name",
        "a name twice",
        "no outcome",
        "an unknown outcome",
        "an ack of nothing delivered",
    ],
)
def test_requests_that_are_refused(client, requests, kind):
    """C1, C4, C11: what ends a channel: names, queues, outcomes and acks that are none."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.pull()
        for request in requests:
            channel.send(**request)
        assert type(channel.refusal()[0]) is kind


# --- deliveries and settlements ---


def test_many_ready_messages_leave_as_one_frame(client):
    """K7: many ready messages are delivered in one frame."""
    client.publish(*[b"%d" % n for n in range(500)])
    client.publish(*[b"%d" % n for n in range(500, 1000)])
    with client.consume() as channel:
        channel.subscribe()
        response = channel.response()
        assert sum(response.header.delivery.runs.rows) == 1000


def test_settlements_that_come_together_are_answered_one_by_one(client):
    """C15: a thousand settlements sent together are each answered, in their order."""
    client.publish(*[b"%d" % n for n in range(1000)])
    with client.consume() as channel:
        channel.pull(1000)
        numbers = [channel.settle(tag, 1 + tag % 4) for tag in range(1, 1001)]
        for number in numbers:
            channel.settled(number)
    info = client.queue()
    assert (info.accepted, info.dropped, info.ready) == (250, 250, 500)


@pytest.mark.parametrize(
    ("tag", "multiple"), [(0, False), (0, True), (3, False), (3, True), (9, False), (1, False)]
)
def test_an_unknown_tag_closes_the_channel(client, tag, multiple):
    """C2: an unknown tag closes the channel; earlier settlements take effect and are answered."""
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.pull(2)
        number = channel.settle(1)
        channel.settle(tag, multiple=multiple)
        channel.settle(2)
        channel.settled(number)
        assert f"unknown delivery tag {tag}" in unknown_tag(channel).message
        assert counts(client) == (1, 1, 0)


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
    """C2: one unknown tag in runs settles none of them; the lowest one is named."""
    client.publish(*[b"%d" % n for n in range(10)])
    with client.consume() as channel:
        channel.pull(10)
        number = channel.settle(3)
        channel.settle(0, first_tag=first_tag, rows=rows)
        channel.settled(number)
        assert unknown_tag(channel).fields["delivery_tag"] == str(unknown)
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


def test_undeclared_outcomes_are_refused_for_runs(client):
    """C5: runs with a message of a consumer that did not declare the outcome are refused."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.pull(1)
        channel.subscribe(outcomes=[])
        channel.deliveries(2)
        channel.settle(0, FAILED, first_tag=[1, 3], rows=[1, 1])
        assert type(channel.refusal()[0]) is errors.OutcomeNotSupportedError
        assert client.queue().ready == 3


def test_undeclared_outcomes_are_refused_for_multiple(client):
    """C5: `multiple` over a message of a consumer that did not declare the outcome is refused."""
    client.publish(b"a", b"b")
    client.declare("other")
    client.publish(b"c", queue="other")
    with client.consume() as channel:
        channel.subscribe("all")
        channel.deliveries(2)
        channel.subscribe("none", "other", outcomes=[])
        channel.deliveries(1)
        channel.settled(channel.settle(2, FAILED, multiple=True), 2)
        channel.settle(5, FAILED, multiple=True)
        assert type(channel.refusal()[0]) is errors.OutcomeNotSupportedError


def test_ending_a_consumer_that_never_was(client):
    """C12: unsubscribing an unknown consumer is no error."""
    with client.consume() as channel:
        channel.unsubscribe("never was")
        channel.quiet()


# --- transport window and resumption ---


def test_pulls_wait_for_the_transport_window(client):
    """C9, C11: a large pull goes on as transport acks open the window."""
    client.publish(*[b"%d" % n for n in range(9)])
    with client.consume(window_messages=4) as channel:
        channel.get(8)
        channel.deliveries(4)
        channel.transport_ack(4)
        assert tags(channel.deliveries(4)) == [5, 6, 7, 8]


def test_a_resumed_client_asks_again(client):
    """C15: settlements and pulls repeated after a resume are answered again, but not done twice."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.subscribe(prefetch=1)
        channel.deliveries(1)
        channel.settled(channel.settle(1, number=1))
        channel.deliveries(1)
        channel.get(9, number=1)
        channel.deliveries(1)
        channel.answer("get_empty")
        with client.resume(channel) as resumed:
            resumed.deliveries(3)
            resumed.subscribe(prefetch=1)
            resumed.settle(1, number=1)
            resumed.settled(1)
            resumed.get(9, number=1)
            assert resumed.answer("get_empty").number == 1
            resumed.settled(resumed.settle(2, number=2))


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


def test_a_newer_stream_takes_the_channel_over(client):
    """C11: a newer stream takes the channel over before the cut is noticed; the older is fenced."""
    client.publish(b"a")
    with client.consume() as older:
        older.subscribe()
        older.deliveries(1)
        with client.consume(older.channel_id) as newer:
            assert type(older.refusal()[0]) is errors.FencedError
            assert tags(newer.deliveries(1)) == [1]
            newer.settled(newer.settle(1))


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
