"""C: consuming and settling on channels."""

import threading
import time

import pytest

from tests.wire.bench import bodies, refused_as, silent, taken
from tests.wire.brokers.dialect import NEGATIVE, Outcome, Refused
from tests.wire.brokers.streams import until

# --- C1: delivery tags ---


def test_tags_count_from_one_per_channel(bench):
    """C1: each channel's tags begin at 1 and grow by one, over consumers and pulls together."""
    consumed, pulled = bench.filled(b"a", b"b"), bench.filled(b"c")
    connection = bench.connect()
    for _ in range(2):
        channel = connection.channel()
        channel.consume(consumed)
        tags = [delivery.tag for delivery in taken(channel, 2)]
        tags += [delivery.tag for delivery in channel.get(pulled)]
        assert tags == [1, 2, 3]
        channel.close()
        bench.wait_ready(consumed, 2)
        bench.wait_ready(pulled, 1)


def test_a_redelivery_has_a_new_tag(bench):
    """C1: a message that comes again on the same channel has the next tag."""
    queue, channel = bench.filled(b"a"), bench.channel()
    for tag in (1, 2, 3):
        (delivery,) = channel.get(queue)
        assert delivery.tag == tag
        channel.settle(delivery, Outcome.RELEASED)


# --- C2: tags that are not outstanding ---


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.RELEASED])
@pytest.mark.parametrize("multiple", [False, True], ids=["one", "multiple"])
@pytest.mark.parametrize("wrong", ["unknown", "twice", "nothing"])
def test_wrong_tag(bench, wrong, multiple, outcome):
    """C2: a tag that is not outstanding closes the channel, and what is unacked is requeued."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    first = channel.get(queue)[0] if wrong != "nothing" else None
    if wrong == "twice":
        channel.settle(first)
        channel.get(queue)
    tag = {"unknown": 7, "twice": 1, "nothing": 1}[wrong]
    with pytest.raises(Refused) as refused:
        channel.settle(tag, outcome, multiple=multiple)
    assert refused.value.condition == "precondition_failed"
    assert f"unknown delivery tag {tag}" in refused.value.text
    bench.wait_ready(queue, 1 if wrong == "twice" else 2)


def test_tag_of_another_channel(bench):
    """C2: a tag counts on its own channel only."""
    queue, connection = bench.filled(b"a", b"b"), bench.connect()
    mine, other = connection.channel(), connection.channel()
    mine.get(queue, 2)
    with refused_as("precondition_failed"):
        other.settle(2)
    mine.settle(2)  # still open
    assert bench.ready(queue) == 0


# --- C3: multiple ---


@pytest.mark.parametrize(
    ("outcome", "left"),
    [(Outcome.ACCEPTED, [3, 4]), (Outcome.REJECTED, [3, 4]), (Outcome.RELEASED, [0, 1, 2, 3, 4])],
)
def test_multiple(bench, outcome, left):
    """C3: `multiple` settles every outstanding tag up to this one, for every outcome alike."""
    messages = [str(number).encode() for number in range(5)]
    queue, channel = bench.filled(*messages), bench.channel()
    deliveries = channel.get(queue, 5)
    channel.settle(deliveries[1], outcome)
    channel.settle(deliveries[2], outcome, multiple=True)
    channel.close()
    bench.wait_ready(queue, len(left))
    assert bench.drain(queue) == [messages[index] for index in left]


@pytest.mark.parametrize("no_ack", [False, True], ids=["settled", "no_ack"])
def test_multiple_of_a_tag_that_is_not_outstanding(bench, no_ack):
    """C2, C3: `multiple` itself names an outstanding tag, however many are below it."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.get(queue)
    (second,) = channel.get(queue, no_ack=no_ack)
    if not no_ack:
        channel.settle(second)
    with refused_as("precondition_failed"):
        channel.settle(second, multiple=True)
    bench.wait_ready(queue, 1)
    assert bench.drain(queue) == [b"a"]


def test_multiple_failed(ackq):
    """C3, C4: `multiple` fails every outstanding tag up to this one."""
    queue, dead = ackq.dead_lettering(b"a", b"b", b"c", delivery_limit=1)
    channel = ackq.channel()
    for _ in range(2):
        deliveries = channel.get(queue, 2)
        channel.settle(deliveries[1], Outcome.FAILED, multiple=True)
    assert bodies(ackq.dead(dead, 2)) == [b"a", b"b"]
    assert ackq.drain(queue) == [b"c"]


# --- C4: outcomes ---


@pytest.mark.parametrize(
    ("outcome", "left", "dead_letters"),
    [
        (Outcome.ACCEPTED, [], []),
        (Outcome.REJECTED, [], [b"x"]),
        (Outcome.RELEASED, [b"x"], []),
    ],
)
def test_outcome(bench, outcome, left, dead_letters):
    """C4: accepted is gone, rejected goes to the dead-letter queue, released is back."""
    queue, dead = bench.dead_lettering(b"x")
    channel = bench.channel()
    channel.settle(channel.get(queue)[0], outcome)
    assert bodies(bench.dead(dead, len(dead_letters))) == dead_letters
    assert bench.drain(queue) == left


def test_rejected_without_a_dead_letter_queue(bench):
    """C4: without a dead-letter queue, rejected is gone."""
    queue, channel = bench.filled(b"x"), bench.channel()
    channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    channel.close()
    assert bench.drain(queue) == []


def test_released_does_not_count(bench):
    """C4: what is released does not count against the delivery limit."""
    queue, dead = bench.dead_lettering(b"x", delivery_limit=1)
    channel = bench.channel()
    released = 0
    while released < 3 and (deliveries := channel.get(queue)):
        channel.settle(deliveries[0], Outcome.RELEASED)
        released += 1
        until(lambda: bench.ready(queue) + bench.ready(dead) == 1)
    bench.expect("releases that a limit of one allows", released, 3)


# --- C5: declared outcomes ---


def test_broker_announces_outcomes(ackq):
    """C5: the broker says at the open which outcomes it supports; accepted is among them."""
    opened = ackq.channel().opened
    assert set(opened.outcomes) == {1, 2, 3, 4}
    assert (opened.heartbeat_ms, opened.resumed) == (5_000, False)


@pytest.mark.parametrize("outcome", NEGATIVE)
def test_undeclared_outcome(ackq, outcome):
    """C5: a consumer that did not declare an outcome cannot use it; its channel is closed."""
    queue, channel = ackq.filled(b"x"), ackq.channel()
    channel.consume(queue, outcomes=tuple(other for other in NEGATIVE if other is not outcome))
    delivery = channel.delivery()
    with pytest.raises(Refused) as refused:
        channel.settle(delivery, outcome)
    assert refused.value.code == "outcome_not_supported"
    assert "Required Settlement Outcome Not Supported" in refused.value.text
    ackq.wait_ready(queue, 1)


def test_accepted_needs_no_declaration(ackq):
    """C5: accepted can always be used."""
    queue, channel = ackq.filled(b"x"), ackq.channel()
    channel.consume(queue, outcomes=())
    channel.settle(channel.delivery())
    channel.close()
    assert ackq.drain(queue) == []


def test_declaring_what_the_broker_does_not_have(ackq):
    """C5: declaring an outcome that the broker does not announce is an invalid operation."""
    from ackq.v1 import consuming_pb2

    queue, channel = ackq.queue(), ackq.channel()
    channel.send(subscribe=consuming_pb2.Subscribe(consumer="c", queue=queue, outcomes=[99]))
    refused = channel.log.wait_end()
    assert refused.code == "invalid_operation"


# --- C6, C7: requeue ---


def test_requeue_to_the_original_position(bench):
    """C6: what is put back stands where it stood, whatever the order of putting back."""
    queue, channel = bench.filled(b"1", b"2", b"3", b"4", b"5"), bench.channel()
    deliveries = channel.get(queue, 4)
    for index in (2, 0, 3):
        channel.settle(deliveries[index], Outcome.RELEASED)
    assert bodies(channel.get(queue, 10)) == [b"1", b"3", b"4", b"5"]


def test_requeue_beside_a_message_that_left(bench):
    """C6: the ones before and after may be gone; the order is kept among what is there."""
    queue, first = bench.filled(b"1", b"2", b"3", b"4"), bench.channel()
    deliveries = first.get(queue, 3)
    first.settle(deliveries[0])
    bench.fill(queue, b"5")
    first.settle(deliveries[2], Outcome.RELEASED)
    first.settle(deliveries[1], Outcome.RELEASED)
    assert bench.drain(queue) == [b"2", b"3", b"4", b"5"]


def test_redelivered(bench):
    """C7: the first delivery is not a redelivery; each later one is, on any channel."""
    queue = bench.filled(b"x", b"y")
    seen = []
    for _ in range(3):
        channel = bench.channel()
        deliveries = channel.get(queue, 1)
        seen += [delivery.redelivered for delivery in deliveries]
        channel.settle(deliveries[0], Outcome.RELEASED)
    assert seen == [False, True, True]
    assert [delivery.redelivered for delivery in bench.channel().get(queue, 2)] == [True, False]


def test_delivery_count(bench):
    """C7: the delivery count is 1 the first time and grows by one with each delivery."""
    queue, channel = bench.filled(b"x"), bench.channel()
    counts = []
    for _ in range(3):
        (delivery,) = channel.get(queue)
        counts.append(delivery.count)
        channel.settle(delivery, Outcome.RELEASED)
    bench.expect("delivery counts", counts, [1, 2, 3])


# --- C8: prefetch ---

TEN = [b"%d" % number for number in range(10)]


def test_prefetch_of_a_consumer(bench):
    """C8: at the consumer's prefetch the broker stops; a settlement opens it by what it settled."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.consume(queue, prefetch=3)
    first = taken(channel, 3)
    assert silent(channel)
    assert bench.ready(queue) == 7
    channel.settle(first[0])
    fourth = channel.delivery()
    assert silent(channel)
    channel.settle(fourth, multiple=True)
    assert bodies(taken(channel, 3)) == TEN[4:7]
    assert silent(channel)
    assert bench.ready(queue) == 3


def test_prefetch_is_per_consumer(bench):
    """C8: each consumer of a channel has its own."""
    queues, channel = [bench.filled(*TEN), bench.filled(*TEN)], bench.channel()
    consumers = [
        channel.consume(queue, prefetch=prefetch)
        for queue, prefetch in zip(queues, (2, 4), strict=True)
    ]
    delivered = sorted((each.queue, each.consumer) for each in taken(channel, 6))
    (one, two) = zip(queues, consumers, strict=True)
    assert delivered == sorted([one] * 2 + [two] * 4)
    assert silent(channel)
    assert [bench.ready(queue) for queue in queues] == [8, 6]


def test_prefetch_of_the_channel(bench):
    """C8: the channel's prefetch bounds its consumers together."""
    queues, channel = [bench.filled(*TEN), bench.filled(*TEN)], bench.channel()
    channel.prefetch(5)
    for queue in queues:
        channel.consume(queue, prefetch=4)
    last = taken(channel, 5)[-1]
    assert silent(channel)
    assert sum(bench.ready(queue) for queue in queues) == 15
    channel.settle(last, multiple=True)
    taken(channel, 5)
    assert silent(channel)


def test_no_prefetch(bench):
    """C8: 0 is no bound."""
    queue, channel = bench.filled(*TEN * 100), bench.channel()
    channel.consume(queue)
    assert [delivery.tag for delivery in taken(channel, 1_000)] == list(range(1, 1_001))


@pytest.mark.parametrize("before", [2, 6])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_prefetch_changes_in_flight(bench, before, after):
    """C8: changing the channel's prefetch while messages are out never stalls it."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.prefetch(before)
    channel.consume(queue)
    taken(channel, before)
    channel.prefetch(after)
    seen = before
    if after == 0:
        taken(channel, 10 - seen)
        return
    channel.settle(before, multiple=True)
    while seen < 10:
        channel.settle(channel.delivery())
        seen += 1


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.RELEASED])
def test_every_outcome_opens_the_prefetch(bench, outcome):
    """C8: rejecting and releasing open the prefetch like accepting."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.consume(queue, prefetch=1)
    channel.settle(channel.delivery(), outcome)
    expected = {Outcome.REJECTED: b"b", Outcome.RELEASED: b"a"}[outcome]
    assert channel.delivery().body == expected


def test_cancelled_consumer_gets_nothing_more(bench):
    """C8, C12: a consumer that ended gets nothing; what it holds stays with the channel."""
    queue, channel = bench.filled(*TEN), bench.channel()
    consumer = channel.consume(queue, prefetch=2)
    held = taken(channel, 2)
    channel.cancel(consumer)
    until(lambda: bench.broker.counts(queue).consumers == 0)
    channel.settle(held[0])
    assert silent(channel)
    assert bench.ready(queue) == 8
    channel.settle(held[1], Outcome.RELEASED)
    assert bench.ready(queue) == 9


def test_prefetch_of_a_consumer_changes(ackq):
    """C8: a consumer's prefetch can be changed too; AMQP fixes it when the consumer starts."""
    queue, channel = ackq.filled(*TEN), ackq.channel()
    consumer = channel.consume(queue, prefetch=2)
    taken(channel, 2)
    channel.prefetch(5, consumer)
    last = taken(channel, 3)[-1]
    assert silent(channel)
    channel.prefetch(1, consumer)
    channel.settle(last, multiple=True)
    channel.delivery()
    assert silent(channel)


# --- C9: get ---


def test_get_is_not_subject_to_prefetch(bench):
    """C9: a pull does not look at the prefetch."""
    queue, channel = bench.filled(*TEN), bench.channel()
    channel.prefetch(1)
    channel.consume(queue)
    channel.delivery()
    assert silent(channel)
    assert bodies(channel.get(queue, 4)) == TEN[1:5]


def test_get_answers_with_what_there_is(bench):
    """C9: a pull of more than is there answers with what there is; of nothing, with nothing."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    assert bodies(channel.get(queue, 5)) == [b"a", b"b"]
    assert channel.get(queue, 5) == []


def test_get_from_a_missing_queue(bench):
    """C9: a pull needs its queue; without it the channel is closed."""
    channel = bench.channel()
    with refused_as("not_found"):
        channel.get(bench.name("missing"))


# --- C10: acknowledge modes ---


def test_no_ack(bench):
    """C10: without acks a message is gone when it is sent, and there is nothing to settle."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.consume(queue, prefetch=1, no_ack=True)
    deliveries = taken(channel, 2)
    assert [delivery.tag for delivery in deliveries] == [1, 2]
    with refused_as("precondition_failed"):
        channel.settle(1)
    assert bench.drain(queue) == []


def consumed(ackq, queue, *, raising=False, **options):
    """Bodies that a client's callback sees, with the messages left when it sees the last one.

    With `raising`, it raises at the first message.
    """
    from ackq.client import Channel

    seen, looked = [], threading.Event()

    def callback(message):
        seen.append(message.body)
        if len(seen) == 1 and raising:
            raise RuntimeError("at the first message")
        if message.body == b"last":
            left.append(left_of(ackq, queue))
            looked.set()

    left = []
    with Channel(ackq.broker.endpoint) as channel:
        channel.consume(queue, callback, **{"prefetch": 1, **options})
        assert looked.wait(20)
    return seen, left[0]


def left_of(ackq, queue):
    """Messages of a queue, ready or unacked."""
    info = ackq.broker.admin.queue(queue)
    return info.ready + info.unacked


@pytest.mark.parametrize(
    ("mode", "left_in_callback", "left_after"),
    [("auto", 1, 0), ("dups_ok", None, 0), ("pre", 0, 0), ("none", 0, 0), ("client", 2, 2)],
)
def test_acknowledge_modes(ackq, mode, left_in_callback, left_after):
    """C10: each mode accepts when it says: after the callback, before it, at send, or not."""
    queue = ackq.filled(b"first", b"last")
    options = {"prefetch": 0} if mode == "client" else {}
    seen, left = consumed(ackq, queue, mode=mode, **options)
    assert seen == [b"first", b"last"]
    if left_in_callback is not None:
        assert left == left_in_callback
    assert left_of(ackq, queue) == left_after


@pytest.mark.parametrize("outcomes", [(), ("failed",)], ids=["released", "failed"])
def test_a_callback_that_raises(ackq, outcomes):
    """C10: in AUTO what a callback raised at is FAILED when that was declared, else RELEASED."""
    queue, _ = ackq.dead_lettering(b"bad", b"last", delivery_limit=1)
    seen, _ = consumed(ackq, queue, raising=True, mode="auto", outcomes=outcomes)
    assert seen == [b"bad", b"bad", b"last"]
    assert ackq.broker.admin.queue(queue).accepted == 2


def test_client_acknowledge(ackq):
    """C10: in CLIENT mode `acknowledge` accepts everything up to and including its message."""
    from ackq.client import Channel

    queue = ackq.filled(b"a", b"b", b"c")
    with Channel(ackq.broker.endpoint) as channel:
        consumer = channel.consume(queue, mode="client")
        messages = [consumer.receive(timeout_s=20) for _ in range(3)]
        assert channel.acknowledge(messages[1]).result(20) == 2
    ackq.wait_ready(queue, 1)
    assert ackq.drain(queue) == [b"c"]


# --- C11: transport acks ---


def unacked_transport(ackq, queue, messages, **options):
    """A consumer with so many deliveries on a channel that sends no transport acks by itself."""
    connection = ackq.connect()
    channel = connection.channel(transport_acks=False, **options)
    channel.consume(queue)
    return connection, channel, taken(channel, messages)


def test_transport_acks_remove_nothing(ackq):
    """C11: a message with a transport ack alone comes back when the channel goes."""
    queue = ackq.filled(*TEN)
    _, channel, deliveries = unacked_transport(ackq, queue, 10)
    channel.transport_ack(deliveries[-1].tag)
    channel.settle(deliveries[0])
    channel.close()
    ackq.wait_ready(queue, 9)


def test_transport_acks_open_the_window(ackq):
    """C11: the broker stops at the window, and goes on by what a transport ack covers."""
    queue = ackq.filled(*TEN)
    _, channel, first = unacked_transport(ackq, queue, 4, window_messages=4)
    assert silent(channel)
    channel.transport_ack(first[1].tag)
    assert bodies(taken(channel, 2)) == TEN[4:6]
    assert silent(channel)
    assert ackq.ready(queue) == 4


def test_retransmission_of_deliveries(ackq):
    """C11: without a transport ack for 2 s the broker sends the oldest again, under its tag."""
    queue, publisher = ackq.filled(b"a"), ackq.publisher()
    _, channel, (first,) = unacked_transport(ackq, queue, 1)
    publisher.publish(queue, b"b")
    second = channel.delivery()
    assert channel.delivery() == first
    channel.transport_ack(second.tag)
    channel.settle(second, multiple=True)
    channel.close()
    assert ackq.drain(queue) == []


def test_resumed_channel(ackq):
    """C11: a channel that was cut goes on: what has no transport ack comes again under its tag."""
    queue = ackq.filled(b"a", b"b", b"c")
    connection, channel, deliveries = unacked_transport(ackq, queue, 3)
    channel.transport_ack(1)
    channel.settle(1)
    other = ackq.connect()
    publisher = other.publisher()
    resumed = other.channel(channel.channel_id)
    connection.cut()
    assert resumed.opened.resumed
    assert ackq.ready(queue) == 0
    publisher.publish(queue, b"d")
    again = []
    while not again or again[-1].body != b"d":
        again.append(resumed.delivery())
    # Frames come again whole; a client drops what it has.
    assert [delivery for delivery in again if delivery not in deliveries[:1]] == [
        *deliveries[1:],
        again[-1],
    ]
    assert again[-1].tag == 4
    resumed.settle(again[-1], multiple=True)
    resumed.close()
    assert ackq.drain(queue) == []


def test_channel_that_comes_too_late(ackq):
    """C11, C12: after its grace a channel that was cut is closed; its id opens a new one."""
    queue = ackq.filled(b"a")
    connection, channel, _ = unacked_transport(ackq, queue, 1)
    connection.cut()
    ackq.wait_ready(queue, 1)
    late = ackq.connect().channel(channel.channel_id)
    assert not late.opened.resumed
    (again,) = late.get(queue)
    assert (again.tag, again.redelivered) == (1, True)


# --- C12: when messages come back ---


@pytest.mark.parametrize("end", ["close", "cut"])
def test_unacked_come_back_when_the_channel_goes(bench, end):
    """C12: when a channel or its connection ends, what it holds is redelivered to others."""
    queue, connection = bench.filled(b"a", b"b", b"c"), bench.connect()
    channel = connection.channel()
    channel.consume(queue)
    channel.settle(taken(channel, 3)[1])
    other = bench.channel()
    other.consume(queue)
    getattr(channel if end == "close" else connection, end)()
    again = taken(other, 2)
    assert [(d.body, d.redelivered) for d in again] == [(b"a", True), (b"c", True)]


def test_unacked_stay_with_a_living_consumer(bench):
    """C12: while a consumer lives, what it holds goes to nobody else."""
    queue, holder = bench.filled(b"a"), bench.channel()
    holder.consume(queue)
    held = holder.delivery()
    other = bench.channel()
    other.consume(queue)
    assert silent(other)
    holder.settle(held)
    assert silent(other)
    assert bench.ready(queue) == 0


def test_heartbeat_loss(bench):
    """C12: a consumer that falls silent loses what it holds."""
    queue = bench.filled(b"a")
    connection = bench.connect(**bench.broker.short_heartbeat)
    channel = connection.channel()
    channel.consume(queue)
    channel.delivery()
    other = bench.channel()
    other.consume(queue)
    connection.silence()
    assert other.delivery(timeout_s=40).redelivered


# --- C13: dead letters ---


def test_delivery_limit(bench):
    """C13: one failure more than the limit moves a message to the dead-letter queue."""
    queue, dead = bench.dead_lettering(b"x", delivery_limit=2)
    channel = bench.channel()
    for _ in range(3):
        bench.wait_ready(queue, 1)
        assert bench.ready(dead) == 0
        channel.settle(channel.get(queue)[0], Outcome.FAILED)
    (letter,) = bench.dead(dead)
    assert (letter.body, letter.death.reason) == (b"x", "delivery_limit")


@pytest.mark.parametrize(
    ("cause", "properties"),
    [
        ("rejected", {}),
        ("expired", {"message_ttl_ms": 50}),
    ],
)
def test_provenance(bench, cause, properties):
    """C13: a dead letter says why, when and in which queue it died, and keeps its own headers."""
    queue, dead = bench.dead_lettering(**properties)
    before = time.time()
    bench.fill(queue, b"x", headers={"tenant": "blue"})
    if cause == "rejected":
        channel = bench.channel()
        channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    (letter,) = bench.dead(dead)
    death = letter.death
    assert (letter.body, letter.headers["tenant"]) == (b"x", "blue")
    assert (death.reason, death.queue, death.first_queue) == (cause, queue, queue)
    assert death.count == 1
    assert before - 1 <= death.at <= time.time() + 1
    bench.expect(
        "names of the headers of a dead letter",
        sorted(name for name in letter.headers if name != "tenant"),
        [
            "ackq-dead-at",
            "ackq-dead-cause",
            "ackq-dead-count",
            "ackq-dead-deliveries",
            "ackq-dead-first-queue",
            "ackq-dead-position",
            "ackq-dead-queue",
            "ackq-dead-reason",
        ],
    )


def test_dropped_from_the_head(bench):
    """C13, Q3: what a full queue drops from its head is gone and no dead letter."""
    queue, dead = bench.dead_lettering(max_length=1, overflow="drop-head")
    for body in (b"a", b"b", b"c"):
        bench.fill(queue, body)
    assert bench.drain(queue) == [b"c"]
    bench.expect("dead letters of a queue that drops its head", bodies(bench.dead_now(dead)), [])


def test_second_death(bench):
    """C13: a dead letter that dies again names the newest queue, and still the first."""
    last = bench.queue()
    middle = bench.queue(dead_letter_queue=last)
    first = bench.queue(dead_letter_queue=middle)
    bench.fill(first, b"x")
    channel = bench.channel()
    for queue in (first, middle):
        bench.wait_ready(queue, 1)
        channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    (letter,) = bench.dead(last)
    assert (letter.death.queue, letter.death.first_queue) == (middle, first)


def test_deaths_count_by_queue_and_cause(bench):
    """C13: a dead letter counts how often it died of that cause in that queue, not all deaths."""
    first, second = bench.name("first"), bench.name("second")
    bench.queue(first, dead_letter_queue=second)
    bench.queue(second, dead_letter_queue=first)
    bench.fill(first, b"x")
    channel = bench.channel()
    deaths = []
    for queue in (first, second, first, second, first):
        bench.wait_ready(queue, 1)
        (delivery,) = channel.get(queue)
        deaths.append(delivery.death and (delivery.death.queue, delivery.death.count))
        channel.settle(delivery, Outcome.REJECTED)
    assert deaths == [None, (first, 1), (second, 1), (first, 2), (second, 2)]


def test_dead_lettering_clears_the_time_to_live(bench):
    """C13: a message that expired does not expire again in the dead-letter queue."""
    queue, dead = bench.dead_lettering()
    bench.fill(queue, b"x", ttl_ms=50)
    (letter,) = bench.dead(dead)
    assert not letter.expires


def test_dead_lettering_ignores_reject_publish(bench):
    """C13: a full dead-letter queue takes dead letters all the same."""
    dead = bench.filled(b"full", max_length=1)
    queue = bench.queue(dead_letter_queue=dead)
    bench.fill(queue, b"x")
    channel = bench.channel()
    channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    channel.close()
    bench.fill(bench.queue(), b"later")
    bench.expect("messages in the full dead-letter queue", bench.drain(dead), [b"full", b"x"])


def test_dead_letter_target_is_gone(bench):
    """C13: a dead letter whose target is gone goes to the built-in queue."""
    queue, dead = bench.dead_lettering(b"x")
    bench.broker.delete(dead, force=True)
    channel = bench.channel()
    channel.settle(channel.get(queue)[0], Outcome.REJECTED)
    try:
        letters = [d.body for d in channel.get("ackq.dead", 1_000) if d.death.queue == queue]
    except Refused:
        letters = []
    bench.expect("letters in the built-in dead-letter queue", letters, [b"x"])


def test_expiry_in_a_circle(bench):
    """C13: a message that expires into a queue that it expired from before is dropped."""
    first, second = bench.name("first"), bench.name("second")
    dead = bench.queue()
    bench.queue(second, message_ttl_ms=100, dead_letter_queue=first)
    bench.queue(first, message_ttl_ms=100, dead_letter_queue=second)
    watch = bench.queue(message_ttl_ms=600, dead_letter_queue=dead)
    bench.fill(first, b"x")
    bench.fill(watch, b"clock")
    bench.wait_ready(dead, 1)  # well after the message has been round
    until(lambda: bench.ready(first) + bench.ready(second) == 0)


def test_limit_without_a_dead_letter_queue(bench):
    """C13: without a dead-letter queue no limit applies."""
    queue = bench.queue(delivery_limit=1)
    bench.fill(queue, b"x")
    channel = bench.channel()
    failures = 0
    while failures < 4 and (deliveries := channel.get(queue)):
        channel.settle(deliveries[0], Outcome.FAILED)
        failures += 1
        bench.fill(bench.queue(), b"later")
    bench.expect("failures that a limit of one allows", failures, 4)


def test_drop_on_limit(ackq):
    """C13: declared so, a queue without dead-letter queue drops at its limit."""
    queue = ackq.queue(delivery_limit=1, drop_on_limit=True)
    ackq.fill(queue, b"x")
    channel = ackq.channel()
    for _ in range(2):
        channel.settle(channel.get(queue)[0], Outcome.FAILED)
    assert channel.get(queue) == []
    assert ackq.broker.admin.queue(queue).dropped == 1


# --- C14: redelivery delay ---


def test_redelivery_delay(ackq):
    """C14: what failed waits, each time twice as long up to a bound, and is not ready meanwhile."""
    queue = ackq.filled(b"x", redelivery_delay_ms=300, redelivery_delay_max_ms=600)
    channel = ackq.channel()
    channel.consume(queue)
    for delay_s in (0.3, 0.6, 0.6):
        delivery = channel.delivery()
        started = time.monotonic()
        channel.settle(delivery, Outcome.FAILED)
        info = ackq.broker.admin.queue(queue)
        if time.monotonic() - started < delay_s:
            assert (info.ready, info.unacked, info.delayed) == (0, 0, 1)
        again = channel.delivery()
        assert time.monotonic() - started >= delay_s
        channel.settle(again, Outcome.RELEASED)  # at once


def test_delay_of_one_settlement(ackq):
    """C14: a settlement can name its own delay; released without one is ready at once."""
    queue, channel = ackq.filled(b"x", redelivery_delay_ms=60_000), ackq.channel()
    for outcome in (Outcome.FAILED, Outcome.RELEASED):
        (delivery,) = channel.get(queue)
        started = time.monotonic()
        channel.settle(delivery, outcome, delay_ms=300)
        ackq.wait_ready(queue, 1)
        assert time.monotonic() - started >= 0.3
    (delivery,) = channel.get(queue)
    channel.settle(delivery, Outcome.RELEASED)
    assert ackq.ready(queue) == 1


# --- C15: settlements are answered ---


def test_settlements_are_answered(ackq):
    """C15: the answer to a settlement says how many messages it settled."""
    queue, channel = ackq.filled(*TEN), ackq.channel()
    deliveries = channel.get(queue, 10)
    assert channel.settle(deliveries[2]) == 1
    assert channel.settle(deliveries[4], multiple=True) == 4
    assert channel.settle(deliveries[9], Outcome.REJECTED, multiple=True) == 5


def test_settlement_without_an_answer(ackq):
    """C15: a settlement that never arrived leaves the message unacked until the channel goes."""
    from ackq.v1 import consuming_pb2

    queue, connection = ackq.filled(b"x"), ackq.connect()
    channel = connection.channel()
    (delivery,) = channel.get(queue)
    connection.relay.hold("to_broker")
    channel.send(settle=consuming_pb2.Settle(delivery_tag=1, outcome=1, number=1))
    info = ackq.broker.admin.queue(queue)
    assert (info.ready, info.unacked) == (0, 1)
    connection.cut()
    ackq.wait_ready(queue, 1)
    assert ackq.drain(queue) == [delivery.body]


# --- C16: depth ---


def test_many_unacked(bench):
    """C16: with many unacked, every other one settled, deliveries and settlements go on."""
    queue, channel = bench.queue(), bench.channel()
    publisher = bench.publisher()
    for _ in range(100):
        publisher.publish_and_wait(queue, *[b"x"] * 100)
    channel.consume(queue)
    last = taken(channel, 10_000)[-1]
    assert last.tag == 10_000
    bench.fill(queue, b"y")
    newest = channel.delivery()
    channel.settle(newest)
    channel.settle(last, multiple=True)
    assert bench.ready(queue) == 0
