"""P: publishing and confirms."""

import secrets
import time

import pytest

from tests.eventually import eventually
from tests.wire.bench import refused_as, taken
from tests.wire.brokers.dialect import Message, Mode, Outcome, Refused
from tests.wire.brokers.streams import Blocked, Confirm, Return, Unblocked

# --- P1: modes ---


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_a_publisher_has_one_mode(bench, mode):
    """P1: asking a publisher of one mode for the other is refused, and ends its stream."""
    (other,) = set(Mode) - {mode}
    publisher = bench.publisher(mode)
    publisher.publish(bench.queue(), b"x")
    if mode is Mode.CONFIRM:
        publisher.answers.all()
    else:
        publisher.commit()
    with refused_as("precondition_failed"):
        publisher.ask_for(other)


# --- P2, P3: numbers and answers ---


def test_numbers_count_from_one_per_publisher(bench):
    """P2: each publisher's numbers begin at 1, whatever others do."""
    queue, connection = bench.queue(), bench.connect()
    publishers = [connection.publisher(), connection.publisher()]
    for count, publisher in enumerate(publishers, start=2):
        publisher.publish(queue, *[b"x"] * count)
    assert [p.answers.all().confirmed for p in publishers] == [{1, 2}, {1, 2, 3}]


def test_multiple_confirms_what_has_no_answer_yet(bench):
    """P2, P3: read by the rule of `multiple`, confirms answer each publish exactly once."""
    queue, publisher = bench.queue(), bench.publisher()
    for _ in range(20):
        publisher.publish(queue, *[b"x"] * 100)
    answers = publisher.answers.all()
    assert answers.confirmed == set(range(1, 2_001))
    confirms = [event for event in answers.seen if isinstance(event, Confirm)]
    assert any(confirm.multiple for confirm in confirms)
    assert bench.ready(queue) == 2_000


def test_every_publish_has_one_answer(bench):
    """P3, P9: routed, full, unroutable, returned, transient: each publish gets one answer."""
    room, full, nowhere = bench.queue(), bench.filled(b"x", max_length=1), bench.name("nowhere")
    publisher = bench.publisher()
    expected_nacks = set()
    for _ in range(50):
        publisher.publish(room, b"persistent")
        publisher.publish(room, b"transient", persistent=False)
        publisher.publish(nowhere, b"dropped")
        publisher.publish(nowhere, b"returned", mandatory=True)
        expected_nacks.update(publisher.publish(full, b"refused"))
    answers = publisher.answers.all()
    assert set(answers.nacked) == expected_nacks
    assert answers.confirmed == answers.sent - expected_nacks
    assert {event.body for event in answers.returned.values()} == {b"returned"}
    assert len(answers.returned) == 50


# --- P4, P5: guarantees of a confirm ---


def test_confirmed_outlives_a_kill_in_every_queue(bench):
    """P4: a confirmed persistent message outlives a kill -9 in every queue it was routed to."""
    queues, exchange = [bench.queue(), bench.queue()], bench.exchange("fanout")
    for queue in queues:
        bench.broker.bind(exchange, queue)
    publisher = bench.publisher()
    published = [str(number).encode() for number in range(200)]
    publisher.publish("", *published, exchange=exchange)
    assert publisher.answers.all().confirmed == set(range(1, 201))
    bench.broker.crash()
    assert [bench.drain(queue) for queue in queues] == [published, published]


# --- P6: messages removed before their confirm ---

MANY = 1_000


@pytest.mark.parametrize(
    ("how", "properties"),
    [
        ("accepted", {}),
        ("rejected", {}),
        ("purged", {}),
        ("deleted", {}),
        ("expired", {"message_ttl_ms": 1}),
        ("dropped", {"max_length": 1, "overflow": "drop-head"}),
    ],
)
def test_removed_counts_as_handled(bench, how, properties):
    """P6: messages settled or removed before their confirm are confirmed all the same."""
    queue, channel, publisher = bench.queue(**properties), bench.channel(), bench.publisher()
    settled = how in ("accepted", "rejected")
    if settled:
        channel.consume(queue)
    for _ in range(MANY // 50):
        publisher.publish(queue, *[b"x"] * 50)
    for _ in range(MANY // 100 if settled else 0):
        channel.settle(taken(channel, 100)[-1], Outcome(how), multiple=True)
    if how == "purged":
        bench.broker.purge(queue)
    if how == "deleted":
        bench.broker.delete(queue, force=True)
    assert publisher.answers.all().confirmed == set(range(1, MANY + 1))
    if settled:
        assert bench.ready(queue) == 0


# --- P7: unroutable ---


def test_unroutable(bench):
    """P7: an unroutable message is confirmed, and a mandatory one returned before its confirm.

    A mandatory message that reaches a queue is not returned.
    """
    queue, exchange = bench.queue(), bench.exchange("direct")
    bench.broker.bind(exchange, queue, "a")
    publisher = bench.publisher()
    publisher.publish_and_wait("b", b"quiet", exchange=exchange)
    publisher.publish_and_wait("b", b"returned", exchange=exchange, mandatory=True)
    publisher.publish_and_wait("a", b"routed", exchange=exchange, mandatory=True)
    assert [type(event) for event in publisher.answers.seen] == [Confirm, Return, Confirm, Confirm]
    (returned,) = publisher.answers.returned.values()
    assert (returned.number, returned.body) == (2, b"returned")
    assert returned.reason
    assert bench.drain(queue) == [b"routed"]


def test_publish_to_a_missing_exchange(bench):
    """P7: a publish to a missing exchange is an error, not an unroutable message."""
    publisher = bench.publisher()
    publisher.publish("key", b"x", exchange=bench.name("missing"))
    try:
        verdict = publisher.answers.all().nacked
        publisher.publish(bench.queue(), b"goes on")
        assert publisher.answers.all().confirmed == {2}
    except Refused as refused:
        verdict = refused.condition
    expected = {1: "exchange_not_found"}
    bench.expect("answer to a publish to a missing exchange", verdict, expected)


# --- P8: nacks ---


def test_nack_says_why(bench):
    """P8: a nack carries the reason, and the message can be published again under a new number."""
    queue, publisher = bench.filled(b"x", max_length=1), bench.publisher()
    publisher.publish_and_wait(queue, b"y")
    bench.expect("reason of the nack", publisher.answers.nacked, {1: "queue_full"})
    bench.drain(queue)
    publisher.publish(queue, b"y")
    assert publisher.answers.all().confirmed == {2}
    assert bench.drain(queue) == [b"y"]


def test_nacked_is_in_no_queue(bench):
    """P8: a message that one of its queues cannot take is stored in none of them."""
    full, room = bench.filled(b"x", max_length=1), bench.queue()
    exchange = bench.exchange("fanout")
    for queue in (full, room):
        bench.broker.bind(exchange, queue)
    publisher = bench.publisher()
    publisher.publish("", b"y", exchange=exchange)
    assert set(publisher.answers.all().nacked) == {1}
    bench.expect("copies in the queue that had room", bench.ready(room), 0)


# --- P10: retransmission ---


@pytest.mark.parametrize("crash", [False, True], ids=["reconnect", "restart"])
def test_retransmission_is_placed_once(ackq, crash):
    """P10: numbers sent again after a reconnect or restart are confirmed, and stored once.

    A transient message that was lost in a restart is stored when it is sent again.
    """
    queue, connection = ackq.queue(), ackq.connect()
    messages = [Message(queue, body) for body in (b"a", b"b", b"c")]
    transient = Message(queue, b"t", persistent=False)
    publisher = connection.publisher()
    connection.relay.hold("to_client")
    publisher.send(1, *messages)
    publisher.send(4, transient)
    ackq.wait_ready(queue, 4)
    assert publisher.answers.seen == []
    connection.cut()
    ackq.fill(queue, b"d")  # persistent, so the restart finds those before it on disk
    if crash:
        ackq.broker.crash()
    again = ackq.publisher(identity=publisher.identity, resume=True)
    again.send(1, *messages)
    again.send(4, transient)
    again.send(5, Message(queue, b"e"))
    assert again.answers.all().confirmed == {1, 2, 3, 4, 5}
    late = [b"d", b"t"] if crash else [b"t", b"d"]
    assert ackq.drain(queue) == [b"a", b"b", b"c", *late, b"e"]


@pytest.mark.parametrize("answers", range(6))
def test_cut_around_any_answer(ackq, answers):
    """P3, P7, P8, P10: wherever a cut falls among the answers, each number gets the same answer
    as without it, and each accepted message is stored once.
    """
    plain, full, ring = (
        ackq.queue(),
        ackq.filled(b"x", max_length=1),
        ackq.queue(max_length=2, overflow="drop-head"),
    )
    volatile = ackq.queue(durable=False)
    keys = (plain, full, volatile, ring, "nobody", plain, ring)
    messages = [Message(key, b"%d" % number, mandatory=True) for number, key in enumerate(keys, 1)]
    connection = ackq.connect()
    publisher = connection.publisher()
    for number, message in enumerate(messages, 1):
        publisher.send(number, message)
    seen, sent = publisher.answers.seen, len(messages)
    publisher.answers.wait(
        # Several publishes may have one answer.
        lambda: True if len(seen) >= answers or publisher.answers.lowest_unanswered > sent else None
    )
    connection.cut()
    publisher.answers.wait_end()
    again = ackq.publisher(identity=publisher.identity, resume=True)
    answered = publisher.answers.confirmed | set(publisher.answers.nacked)
    for number, message in enumerate(messages, 1):
        if number not in answered:
            again.send(number, message)
    again.answers.all()
    assert set(publisher.answers.nacked) | set(again.answers.nacked) == {2}
    assert publisher.answers.confirmed | again.answers.confirmed == {1, 3, 4, 5, 6, 7}
    assert set(publisher.answers.returned) | set(again.answers.returned) == {5}
    assert ackq.drain(plain) == [b"1", b"6"]
    assert ackq.drain(ring) == [b"4", b"7"]
    assert ackq.drain(volatile) == [b"3"]


def test_nacked_number_is_handled_afresh(ackq):
    """P10: a nacked number sent again is stored, as it was not accepted."""
    queue, publisher = ackq.filled(b"x", max_length=1), ackq.publisher()
    publisher.publish(queue, b"y")
    assert set(publisher.answers.all().nacked) == {1}
    ackq.drain(queue)
    again = ackq.publisher(identity=publisher.identity, resume=True)
    again.send(1, Message(queue, b"y"))
    assert again.answers.all().confirmed == {1}
    assert ackq.drain(queue) == [b"y"]


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_forgotten_publisher(ackq, mode):
    """P10, P13: a resuming publisher that the broker does not know is refused."""
    with refused_as("precondition_failed", "publisher_forgotten"):
        ackq.publisher(mode, identity=secrets.token_bytes(16), resume=True)


def test_probe_names_what_is_missing(ackq):
    """P10: a probe is answered with the numbers that the broker never received."""
    queue, publisher = ackq.queue(), ackq.publisher()
    publisher.send(1, Message(queue, b"1"))
    publisher.send(3, Message(queue, b"3"), Message(queue, b"4"))
    publisher.answers.all()
    assert publisher.probe(1, 6) == [(2, 2), (5, 6)]
    publisher.send(2, Message(queue, b"2"))
    assert publisher.answers.all().confirmed == {1, 2, 3, 4}
    assert publisher.probe(1, 4) == []


# --- P11: when confirms come ---


def test_ack_immediately(bench):
    """P11: a message with `ack_immediately` is confirmed at once."""
    queue, publisher = bench.queue(), bench.publisher()
    started = time.monotonic()
    for _ in range(60):
        publisher.publish_and_wait(queue, b"x", ack_immediately=True)
    assert time.monotonic() - started < 30


# --- P12: delivery mode ---


def test_delivery_mode_per_message(bench):
    """P5, P11, P12: each message has its own delivery mode, and is confirmed without others."""
    queue, publisher = bench.queue(), bench.publisher()
    for persistent in (True, False, True):
        publisher.publish_and_wait(queue, b"x", persistent=persistent)
    assert publisher.answers.confirmed == {1, 2, 3}
    deliveries = bench.channel().get(queue, 3)
    assert [delivery.persistent for delivery in deliveries] == [True, False, True]


# --- P14: flow control ---


def test_blocked(bench):
    """P14: a broker without disk space reports blocked to publishers, and later unblocked."""
    queue, publisher = bench.queue(), bench.publisher()
    bench.broker.disk_alarm(on=True)
    try:

        def blocked():
            # RabbitMQ notifies a connection that publishes; ackq checks its disk every second.
            publisher.publish(queue, b"x")
            return any(isinstance(event, Blocked) for event in publisher.answers.seen)

        eventually("the alarm", blocked, every_s=0.1)
        assert publisher.answers.next(Blocked).reason
        (during,) = publisher.publish(queue, b"while blocked")
    finally:
        bench.broker.disk_alarm(on=False)
    publisher.answers.next(Unblocked)
    (after,) = publisher.publish(queue, b"afterwards")
    answers = publisher.answers.all()
    assert after in answers.confirmed
    bench.expect("a publish while blocked is nacked", during in answers.nacked, by_rule=True)
