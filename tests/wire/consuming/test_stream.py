"""Channels over the wire, by raw stubs, against a real broker process."""

import threading
import time

import grpc
import pytest

from ackq.errors import (
    FencedError,
    InUseError,
    InvalidArgumentError,
    InvalidOperationError,
    LimitError,
    OutcomeNotSupportedError,
    QueueNotFoundError,
    UnknownDeliveryTagError,
)
from ackq.v1 import consuming_pb2 as pb
from tests.fakes.raw_client import TIMEOUT_S, Client, error_of, refused

ACCEPTED, FAILED, REJECTED, RELEASED = 1, 2, 3, 4


def bodies(deliveries):
    return [delivery.body for delivery in deliveries]


def tags(deliveries):
    return [delivery.tag for delivery in deliveries]


def counts(deliveries):
    return [delivery.count for delivery in deliveries]


def ready_again(client, ready, unacked=0, name="q"):
    """Waits until a queue is as it should be: the end of a stream reaches a broker in its time."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        info = client.queue(name)
        if (info.ready, info.unacked) == (ready, unacked):
            return
        threading.Event().wait(0.02)
    pytest.fail(f"ready {info.ready}, unacked {info.unacked}")


# --- opening ---


def test_a_channel_announces_its_outcomes(client):
    """C5: the broker says at open which outcomes it supports."""
    with client.consume() as channel:
        assert sorted(channel.opened.outcomes) == [ACCEPTED, FAILED, REJECTED, RELEASED]
        assert channel.opened.heartbeat_ms == 5_000
        assert not channel.opened.resumed


@pytest.mark.parametrize(
    "request_",
    [
        pb.ConsumeRequest(),
        pb.ConsumeRequest(settle=pb.Settle(delivery_tag=1)),
        pb.ConsumeRequest(open=pb.ChannelOpen(channel_id=b"short")),
    ],
)
def test_a_channel_begins_with_an_open(client, request_):
    """C1: the first request opens the channel, under an id of 16 bytes."""
    with pytest.raises(grpc.RpcError) as failed:
        list(client.consuming.Consume(iter([request_]), timeout=TIMEOUT_S))
    assert type(error_of(failed.value)[0]) is InvalidArgumentError


def test_a_channel_is_opened_once(client):
    """C1: a second open on a stream is an error."""
    with client.consume() as channel:
        channel.send(open=pb.ChannelOpen(channel_id=channel.channel_id))
        assert type(channel.refusal()[0]) is InvalidArgumentError


# --- deliveries and settlements ---


def test_tags_grow_by_one_from_one_on_each_channel(client):
    """C1: tags are scoped to a channel and start at 1."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as first, client.consume() as second:
        first.get(2)
        assert [(d.tag, d.body) for d in first.deliveries(2)] == [(1, b"a"), (2, b"b")]
        second.get(1)
        assert [(d.tag, d.body) for d in second.deliveries(1)] == [(1, b"c")]


def test_a_consumer_gets_what_is_ready_and_what_comes(client):
    """C1, C7: deliveries name the consumer and the queue and count from 1."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.subscribe("me")
        (first,) = channel.deliveries(1)
        client.publish(b"b")
        (second,) = channel.deliveries(1)
        assert [(d.tag, d.body, d.count, d.consumer) for d in (first, second)] == [
            (1, b"a", 1, "me"),
            (2, b"b", 1, "me"),
        ]


def test_many_ready_messages_leave_as_one_frame(client):
    """K7: tiny deliveries are batched."""
    client.publish(*[b"%d" % n for n in range(500)])
    client.publish(*[b"%d" % n for n in range(500, 1000)])
    with client.consume() as channel:
        channel.subscribe()
        response = channel.response()
        assert sum(response.header.delivery.runs.rows) == 1000


def test_accepted_messages_are_gone(client):
    """C4, C15: an accepted message is gone when the answer is there."""
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.subscribe()
        channel.deliveries(2)
        channel.settled(channel.settle(1))
        info = client.queue()
        assert (info.ready, info.unacked, info.accepted) == (0, 1, 1)


@pytest.mark.parametrize("outcome", [FAILED, RELEASED])
def test_put_back_messages_come_again(client, outcome):
    """C4, C6, C7: a message put back comes again before later ones, counted."""
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.subscribe(prefetch=1)
        (first,) = channel.deliveries(1)
        number = channel.settle(first.tag, outcome)
        answers = [channel.response().header, channel.response()]
        assert answers[0].settled.number == number
        assert answers[1].header.delivery.runs.first_tag == [2]
        assert answers[1].header.delivery.runs.delivery_count == [2]


def test_rejected_messages_go(client):
    """C4: without a dead-letter queue a rejected message is discarded and counted."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.subscribe()
        channel.deliveries(1)
        channel.settled(channel.settle(1, REJECTED, reason="bad"))
        info = client.queue()
        assert (info.ready, info.unacked, info.dropped) == (0, 0, 1)


@pytest.mark.parametrize("outcome", [ACCEPTED, FAILED, REJECTED, RELEASED])
def test_multiple_settles_everything_up_to_a_tag(client, outcome):
    """C3: for every outcome alike."""
    client.publish(*[b"%d" % n for n in range(5)])
    with client.consume() as channel:
        channel.get(5)
        channel.deliveries(5)
        channel.settled(channel.settle(2))
        channel.settled(channel.settle(4, outcome, multiple=True), 3)
        assert client.queue().unacked == 1


def test_settlements_that_come_together_are_answered_one_by_one(client):
    """C15: a thousand settlements in one breath, each with its answer, in their order."""
    client.publish(*[b"%d" % n for n in range(1000)])
    with client.consume() as channel:
        channel.get(1000)
        channel.deliveries(1000)
        numbers = [channel.settle(tag, 1 + tag % 4) for tag in range(1, 1001)]
        for number in numbers:
            channel.settled(number)
    info = client.queue()
    assert (info.accepted, info.dropped, info.ready) == (250, 250, 500)


@pytest.mark.parametrize(
    ("tag", "multiple"), [(0, False), (0, True), (3, False), (3, True), (9, False), (1, False)]
)
def test_an_unknown_tag_closes_the_channel(client, tag, multiple):
    """C2: what came before takes effect and is answered; the rest is requeued."""
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.get(2)
        channel.deliveries(2)
        number = channel.settle(1)
        channel.settle(tag, multiple=multiple)
        channel.settle(2)
        channel.settled(number)
        error, status = channel.refusal()
        assert (type(error), status) == (UnknownDeliveryTagError, "FAILED_PRECONDITION")
        assert f"unknown delivery tag {tag}" in error.message
        info = client.queue()
        assert (info.accepted, info.ready, info.unacked) == (1, 1, 0)


def test_runs_of_tags_are_settled_in_one_decision(client):
    """C15: a settlement names runs; behind an older unsettled message they are one call."""
    client.publish(*[b"%d" % n for n in range(20)])
    with client.consume() as channel:
        assert channel.opened.settle_runs
        channel.get(20)
        channel.deliveries(20)
        channel.settled(channel.settle(0, first_tag=[2, 5, 9], rows=[1, 3, 10]), 14)
        channel.settled(channel.settle(0, RELEASED, first_tag=[4], rows=[1]))
        info = client.queue()
        assert (info.accepted, info.ready, info.unacked) == (14, 1, 5)
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
    """C2: the lowest one is named, the channel is closed; what came before takes effect."""
    client.publish(*[b"%d" % n for n in range(10)])
    with client.consume() as channel:
        channel.get(10)
        channel.deliveries(10)
        number = channel.settle(3)
        channel.settle(0, first_tag=first_tag, rows=rows)
        channel.settled(number)
        error, status = channel.refusal()
        assert (type(error), status) == (UnknownDeliveryTagError, "FAILED_PRECONDITION")
        assert error.fields["delivery_tag"] == str(unknown)
        info = client.queue()
        assert (info.accepted, info.ready, info.unacked) == (1, 9, 0)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"first_tag": [1, 3], "rows": [1]}, InvalidArgumentError),
        ({"first_tag": [1]}, InvalidArgumentError),
        ({"rows": [1]}, InvalidArgumentError),
        ({"first_tag": [3, 1], "rows": [1, 1]}, InvalidArgumentError),
        ({"first_tag": [1, 2], "rows": [2, 1]}, InvalidArgumentError),
        ({"first_tag": [1, 3], "rows": [1, 0]}, InvalidArgumentError),
        ({"first_tag": [0], "rows": [1]}, InvalidArgumentError),
        ({"first_tag": [(1 << 64) - 1], "rows": [2]}, InvalidArgumentError),
        ({"first_tag": [1], "rows": [1], "multiple": True}, InvalidArgumentError),
        ({"first_tag": [1], "rows": [1], "delivery_tag": 2}, InvalidArgumentError),
        ({"first_tag": range(1, 4098), "rows": [1] * 4097}, LimitError),
    ],
)
def test_runs_that_are_none_are_refused(client, fields, kind):
    """C2, I6: not parallel, not ascending, empty, past 64 bits, beside a tag, too many."""
    client.publish(*[b"%d" % n for n in range(5000)])
    with client.consume() as channel:
        channel.get(5000)
        channel.deliveries(5000)
        channel.settle(fields.pop("delivery_tag", 0), **fields)
        assert type(channel.refusal()[0]) is kind
        assert client.queue().ready == 5000


def test_the_most_runs_that_a_settlement_may_name(client):
    """I6: 4096 of them are one settlement."""
    client.publish(*[b"%d" % n for n in range(8192)])
    with client.consume() as channel:
        channel.get(8192)
        channel.deliveries(8192)
        channel.settled(channel.settle(0, first_tag=range(2, 8193, 2), rows=[1] * 4096), 4096)


def test_undeclared_outcomes_are_refused_for_runs(client):
    """C5: one message of a consumer that did not declare the outcome refuses the settlement."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.get(1)
        channel.deliveries(1)
        channel.subscribe(outcomes=[])
        channel.deliveries(2)
        channel.settle(0, FAILED, first_tag=[1, 3], rows=[1, 1])
        assert type(channel.refusal()[0]) is OutcomeNotSupportedError
        assert client.queue().ready == 3


def test_a_tag_of_another_channel_is_unknown(client):
    """C2: tags belong to the channel that gave them."""
    client.publish(b"a")
    with client.consume() as one, client.consume() as other:
        one.get()
        one.deliveries(1)
        other.settle(1)
        assert type(other.refusal()[0]) is UnknownDeliveryTagError
        one.settled(one.settle(1))


def test_undeclared_outcomes_are_refused(client):
    """C5: an outcome that the consumer did not declare closes the channel; ACCEPTED never does."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.subscribe(outcomes=[RELEASED])
        channel.deliveries(3)
        first = channel.settle(1)
        channel.settle(2, REJECTED)
        channel.settled(first)
        error, status = channel.refusal()
        assert (type(error), status) == (OutcomeNotSupportedError, "FAILED_PRECONDITION")
        assert error.message.startswith("Required Settlement Outcome Not Supported")
        assert client.queue().ready == 2


def test_undeclared_outcomes_are_refused_for_multiple(client):
    """C5: one message of a consumer that did not declare the outcome refuses the settlement."""
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
        assert type(channel.refusal()[0]) is OutcomeNotSupportedError


def test_an_outcome_that_is_not_announced_is_refused_at_subscribe(client):
    """C5: declaring it is an invalid operation."""
    with client.consume() as channel:
        channel.subscribe(outcomes=[9])
        error, status = channel.refusal()
        assert (type(error), status) == (InvalidOperationError, "FAILED_PRECONDITION")


@pytest.mark.parametrize(
    ("subscription", "kind"),
    [
        ({"queue": "nowhere"}, QueueNotFoundError),
        ({"consumer": ""}, InvalidArgumentError),
        ({"consumer": "x" * 256}, InvalidArgumentError),
    ],
)
def test_bad_subscriptions(client, subscription, kind):
    """C1: a consumer needs a name and a queue that exists."""
    with client.consume() as channel:
        channel.subscribe(**subscription)
        assert type(channel.refusal()[0]) is kind


def test_consumer_names_are_unique_on_a_channel(client):
    """C1: a second consumer of the same name is refused."""
    with client.consume() as channel:
        channel.subscribe("one")
        channel.subscribe("one")
        assert type(channel.refusal()[0]) is InvalidArgumentError


@pytest.mark.parametrize("outcome", [0, 9])
def test_a_settlement_names_an_outcome(client, outcome):
    """C4: no outcome, or one that is none, is refused."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.get()
        channel.deliveries(1)
        channel.settle(1, outcome)
        assert type(channel.refusal()[0]) is InvalidArgumentError


# --- prefetch ---


def test_prefetch_stops_and_opens_by_what_was_settled(client):
    """C8: an ack opens the window by what it settled."""
    client.publish(*[b"%d" % n for n in range(10)])
    with client.consume() as channel:
        channel.subscribe(prefetch=4)
        assert tags(channel.deliveries(4)) == [1, 2, 3, 4]
        channel.quiet()
        channel.settled(channel.settle(3, multiple=True), 3)
        assert tags(channel.deliveries(3)) == [5, 6, 7]
        channel.quiet()


def test_prefetch_of_a_channel_counts_all_its_consumers(client):
    """C8: the channel's own bound is over both consumers' messages."""
    client.declare("other")
    client.publish(b"a", b"b")
    client.publish(b"c", b"d", queue="other")
    with client.consume() as channel:
        channel.prefetch(3)
        channel.subscribe("one")
        channel.subscribe("two", "other")
        assert len(channel.deliveries(3)) == 3
        channel.quiet()
        channel.settled(channel.settle(1))
        channel.deliveries(1)


def test_lowering_the_prefetch_never_stalls(client):
    """C8: what is out may be over the new bound; as soon as it is under, deliveries go on."""
    client.publish(*[b"%d" % n for n in range(6)])
    with client.consume() as channel:
        channel.subscribe(prefetch=4)
        channel.deliveries(4)
        channel.prefetch(1, "c")
        channel.settled(channel.settle(3, multiple=True), 3)
        channel.quiet()
        channel.settled(channel.settle(4))
        assert tags(channel.deliveries(1)) == [5]


def test_raising_the_prefetch_opens_at_once(client):
    """C8: a larger bound, or none, needs no settlement to take effect."""
    client.publish(*[b"%d" % n for n in range(6)])
    with client.consume() as channel:
        channel.subscribe(prefetch=1)
        channel.deliveries(1)
        channel.prefetch(3, "c")
        channel.deliveries(2)
        channel.quiet()
        channel.prefetch(0, "c")
        channel.deliveries(3)


def test_get_is_not_subject_to_prefetch(client):
    """C9: neither bound stops a pull, and pulled messages take no room from consumers."""
    client.publish(*[b"%d" % n for n in range(6)])
    with client.consume() as channel:
        channel.prefetch(2)
        channel.subscribe(prefetch=1)
        channel.deliveries(1)
        channel.get(3, number=7)
        pulled = channel.deliveries(3)
        assert [(d.consumer, d.get_number) for d in pulled] == [("", 7)] * 3
        channel.settled(channel.settle(1))
        assert tags(channel.deliveries(1)) == [5]


def test_get_that_finds_fewer_says_so(client):
    """C9: the answer to a pull that found fewer than asked follows its messages."""
    client.publish(b"a", b"b")
    with client.consume() as channel:
        channel.get(5, number=3)
        channel.deliveries(2)
        assert channel.answer("get_empty").number == 3


def test_every_outcome_may_be_used_for_pulled_messages(client):
    """C5, C9: a pull declares nothing."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.get()
        channel.deliveries(1)
        channel.settled(channel.settle(1, RELEASED))
        assert client.queue().ready == 1


def test_no_ack_removes_at_send(client):
    """C10: NONE: nothing is unacked, prefetch does not count, and settling is an error."""
    client.publish(*[b"%d" % n for n in range(5)])
    with client.consume() as channel:
        channel.subscribe(prefetch=1, no_ack=True)
        assert bodies(channel.deliveries(5)) == [b"%d" % n for n in range(5)]
        info = client.queue()
        assert (info.ready, info.unacked, info.accepted) == (0, 0, 5)
        channel.get(1, no_ack=True, number=9)
        assert channel.answer("get_empty").number == 9
        channel.settle(1)
        assert type(channel.refusal()[0]) is UnknownDeliveryTagError


# --- ends ---


def test_half_close_requeues(client):
    """C12: when the channel ends, what is unacked is ready again at its place, one older."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.subscribe()
        channel.deliveries(3)
        number = channel.settle(2)
        channel.half_close()
        channel.settled(number)
        channel.ended()
        info = client.queue()
        assert (info.ready, info.unacked) == (2, 0)
    with client.consume() as channel:
        channel.subscribe()
        assert [(d.body, d.count) for d in channel.deliveries(2)] == [(b"a", 2), (b"c", 2)]


def test_a_lost_connection_requeues_after_the_grace(client, shared_broker):
    """C12: a client that does not come back loses its channel."""
    client.publish(b"a")
    with Client(shared_broker.endpoint) as other, other.consume() as channel:
        channel.subscribe()
        channel.deliveries(1)
    ready_again(client, 1)


def test_unsubscribe_leaves_messages_unacked(client):
    """C12: what an ended consumer holds stays on the channel, and can be settled."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.subscribe()
        channel.deliveries(1)
        channel.unsubscribe()
        channel.unsubscribe("never was")
        client.publish(b"b")
        channel.settled(channel.settle(1, RELEASED))
        channel.quiet()
        channel.subscribe()
        assert bodies(channel.deliveries(2)) == [b"a", b"b"]


def test_deleting_a_queue_cancels_its_consumers(client):
    """Q4: a delete is refused while a consumer reads the queue; forced, the consumer is told."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.subscribe("me")
        channel.deliveries(1)
        assert client.queue().consumers == 1
        assert type(refused(client.delete)[0]) is InUseError
        client.delete(force=True)
        cancelled = channel.answer("cancelled")
        assert (cancelled.consumer, cancelled.reason.code) == ("me", "queue_not_found")
        channel.settled(channel.settle(1))


def test_unacked_state_survives_a_kill(broker, own):
    """Q7: after `kill -9` what a channel held is ready again and counted; settled is settled."""
    own.publish(b"a", b"b", b"c")
    with own.consume() as channel:
        channel.subscribe(prefetch=2)
        channel.deliveries(2)
        channel.settled(channel.settle(1))
        channel.deliveries(1)
        broker.kill()
    broker.restart()
    with Client(broker.endpoint) as again, again.consume() as channel:
        channel.subscribe()
        assert [(d.tag, d.body, d.count) for d in channel.deliveries(2)] == [
            (1, b"b", 2),
            (2, b"c", 2),
        ]


# --- transport window and resumption ---


def test_the_transport_window_bounds_what_is_out(client):
    """C11: a transport ack reopens the window and removes nothing."""
    client.publish(*[b"%d" % n for n in range(9)])
    with client.consume(window_messages=4) as channel:
        channel.subscribe()
        channel.deliveries(4)
        channel.settled(channel.settle(1))
        channel.transport_ack(3)
        assert tags(channel.deliveries(3)) == [5, 6, 7]
        assert client.queue().unacked == 6


def test_pulls_wait_for_the_transport_window(client):
    """C9, C11: a large pull goes on as the window opens."""
    client.publish(*[b"%d" % n for n in range(9)])
    with client.consume(window_messages=4) as channel:
        channel.get(8)
        channel.deliveries(4)
        channel.transport_ack(4)
        assert tags(channel.deliveries(4)) == [5, 6, 7, 8]


def test_a_transport_ack_of_nothing_delivered_is_refused(client):
    """C11: everything up to a tag that was never given cannot have arrived."""
    with client.consume() as channel:
        channel.transport_ack(1)
        assert type(channel.refusal()[0]) is InvalidArgumentError


def test_a_cut_channel_is_resumed(client):
    """C11: the same tags come again without those acknowledged, and consumers go on."""
    client.publish(b"a", b"b", b"c")
    with client.consume() as channel:
        channel.subscribe(prefetch=3)
        channel.deliveries(3)
        channel.transport_ack(1)
        number = channel.settle(1)
        channel.settled(number)
        with client.resume(channel) as resumed:
            assert resumed.opened.resumed
            client.publish(b"d")
            again = resumed.deliveries(4)
            assert [(d.tag, d.body, d.count) for d in again[-3:]] == [
                (2, b"b", 1),
                (3, b"c", 1),
                (4, b"d", 1),
            ]
            resumed.settled(resumed.settle(4, multiple=True, number=2), 3)


def test_a_resumed_client_asks_again(client):
    """C15: what has no answer is asked again under its number: answered again, not done twice."""
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
    """C15: a transport ack of what came on the newer stream says nothing of answers on the older.

    A client may ask again after it.
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
    """C11: a client may be back before the broker noticed the cut; the older stream ends."""
    client.publish(b"a")
    with client.consume() as older:
        older.subscribe()
        older.deliveries(1)
        with client.consume(older.channel_id) as newer:
            assert type(older.refusal()[0]) is FencedError
            assert tags(newer.deliveries(1)) == [1]
            newer.settled(newer.settle(1))


def test_a_cancelled_consumer_is_told_after_a_cut(client):
    """C11, Q4: what was said while nobody listened is said again."""
    with client.consume() as channel:
        channel.subscribe("me")
        channel.quiet()
        client.delete(force=True)
        with client.resume(channel) as resumed:
            assert resumed.answer("cancelled").consumer == "me"


def test_a_consumer_whose_queue_went_during_a_cut_is_cancelled(client):
    """C11, Q4: a subscription that is repeated for it ends that consumer, not the channel."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.get()
        channel.deliveries(1)
        channel.subscribe("me")
        channel.quiet()
        client.delete(force=True)
        with client.resume(channel) as resumed:
            resumed.deliveries(1)
            assert resumed.answer("cancelled").consumer == "me"
            resumed.subscribe("me")
            assert resumed.answer("cancelled").consumer == "me"
            resumed.quiet()
            resumed.settled(resumed.settle(1))


def test_a_subscription_that_was_lost_with_its_queue_is_cancelled(client):
    """C11, Q4: also one that the broker never saw, for its client cannot tell."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.get()
        channel.deliveries(1)
        client.delete(force=True)
        with client.resume(channel) as resumed:
            resumed.deliveries(1)
            for _ in range(2):
                resumed.subscribe("me")
                cancelled = resumed.answer("cancelled")
                assert (cancelled.consumer, cancelled.reason.code) == ("me", "queue_not_found")
            resumed.quiet()
            resumed.settled(resumed.settle(1))


def test_a_consumer_that_was_cancelled_does_not_come_back_with_a_queue_of_its_name(client):
    """C11, Q1: the queue that is declared again is another one, and the client was told the end."""
    with client.consume() as channel:
        channel.subscribe("me")
        channel.quiet()
        client.delete(force=True)
        client.declare()
        client.publish(b"a")
        with client.resume(channel) as resumed:
            assert resumed.answer("cancelled").consumer == "me"
            resumed.subscribe("me")
            assert resumed.answer("cancelled").consumer == "me"
            resumed.quiet()
            resumed.subscribe("you")
            assert bodies(resumed.deliveries(1)) == [b"a"]


def test_after_the_grace_the_channel_is_another(client):
    """C11, C12: a channel whose grace is over is new: its tags begin at 1 again."""
    client.publish(b"a")
    with client.consume() as channel:
        channel.subscribe()
        channel.deliveries(1)
        channel.half_close()
        channel.ended()
        with client.consume(channel.channel_id) as again:
            assert not again.opened.resumed
            again.subscribe()
            assert [(d.tag, d.count) for d in again.deliveries(1)] == [(1, 2)]
