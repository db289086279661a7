"""Q: queues, exchanges, and what survives a restart."""

import contextlib

import pytest

from tests.eventually import equals, eventually
from tests.wire.bench import bodies, refused_as, taken
from tests.wire.brokers.dialect import Message, Mode, Outcome, Refused

# --- Q1: declare ---


@pytest.mark.parametrize(
    "other", [{"durable": False}, {"max_length": 8}, {"message_ttl_ms": 60_000}], ids=str
)
def test_declare_with_other_properties(bench, other):
    """Q1: declaring a queue again with other properties is refused, and changes nothing.

    With the same properties it is a success, which changes nothing either.
    """
    queue = bench.filled(b"kept", max_length=7)
    with refused_as("precondition_failed"):
        bench.queue(queue, **{"max_length": 7, **other})
    bench.queue(queue, max_length=7)
    assert bench.drain(queue) == [b"kept"]


def test_any_name_may_begin_with_amq(bench):
    """Q1: a queue name may begin with `amq.`; only the names of built-in objects are reserved."""
    name = f"amq.{bench.name('queue')}"
    refused = refuses(bench.queue, name)
    bench.expect("a queue named amq.something is declared", not refused, True)


def test_redeclared_name_is_another_queue(bench):
    """Q1: a queue declared again after its deletion has no messages and no bindings."""
    queue, exchange = bench.filled(b"old"), bench.exchange("fanout")
    bench.broker.bind(exchange, queue)
    bench.broker.delete(queue)
    bench.queue(queue)
    publisher = bench.publisher()
    publisher.publish("", b"lost", exchange=exchange)
    publisher.publish_and_wait(queue, b"new")
    assert bench.drain(queue) == [b"new"]


# --- Q2: routing ---


def routed(bench, exchange, queue, *keys):
    """The routing keys of these with which a message reaches the queue."""
    publisher = bench.publisher()
    for key in keys:
        publisher.publish_and_wait(key, key.encode(), exchange=exchange)
    return [body.decode() for body in bench.drain(queue)]


def test_exchanges_route(bench):
    """Q2: the default exchange looks for a queue of the key's name, a direct one for the whole key.

    A removed binding routes nothing. A fanout exchange ignores the key.
    """
    first, second = bench.queue(), bench.queue()
    assert routed(bench, "", first, first, second, first) == [first, first]
    assert bench.drain(second) == [second.encode()]
    direct, fanout = bench.exchange("direct"), bench.exchange("fanout")
    for key in ("a.b", "removed"):
        bench.broker.bind(direct, first, key)
    bench.broker.unbind(direct, first, "removed")
    keys = ("a.b", "a", "a.b.c", "a.*", "", "removed")
    assert routed(bench, direct, first, *keys) == ["a.b"]
    for queue in (first, second):
        bench.broker.bind(fanout, queue, "ignored")
    assert routed(bench, fanout, first, "any") == ["any"]
    assert bench.drain(second) == [b"any"]


TOPIC_KEYS = ("a", "a.b", "a.b.c", "b", "b.a", "a.x.b", "a.x.y.b", "")


@pytest.mark.parametrize(
    ("patterns", "matching"),
    [
        (["#"], TOPIC_KEYS),
        (["#.#"], TOPIC_KEYS),
        (["*.#"], TOPIC_KEYS[:-1]),
        ([""], ("",)),
        (["*"], ("a", "b")),
        (["a.*"], ("a.b",)),
        (["a.#"], ("a", "a.b", "a.b.c", "a.x.b", "a.x.y.b")),
        (["#.b"], ("a.b", "b", "a.x.b", "a.x.y.b")),
        (["a.#.b"], ("a.b", "a.x.b", "a.x.y.b")),
        (["a.*.b"], ("a.x.b",)),
        (["*.*"], ("a.b", "b.a")),
        (["#.a.#"], ("a", "a.b", "a.b.c", "b.a", "a.x.b", "a.x.y.b")),
        (["a.b"], ("a.b",)),
        (["a.#", "#.b", "a.#"], ("a", "a.b", "a.b.c", "b", "a.x.b", "a.x.y.b")),
    ],
)
def test_topic_exchange(bench, patterns, matching):
    """Q2: in a topic pattern `*` is one word and `#` is any number of them; an empty key has none.

    Several matching bindings deliver a message once; binding again changes nothing.
    """
    queue, exchange = bench.queue(), bench.exchange("topic")
    for pattern in patterns:
        bench.broker.bind(exchange, queue, pattern)
    assert routed(bench, exchange, queue, *TOPIC_KEYS) == list(matching)


def test_declare_exchange_again(bench):
    """Q2: declaring an exchange again is a success, with another type it is refused."""
    exchange = bench.exchange("direct")
    bench.broker.declare_exchange(exchange, "direct")
    with refused_as("precondition_failed"):
        bench.broker.declare_exchange(exchange, "topic")


@pytest.mark.parametrize("missing", ["queue", "exchange"])
def test_bind_what_is_not_there(bench, missing):
    """Q2: a binding needs an existing queue and an existing exchange."""
    queue = bench.name("queue") if missing == "queue" else bench.queue()
    exchange = bench.name("exchange") if missing == "exchange" else bench.exchange("direct")
    with refused_as("not_found"):
        bench.broker.bind(exchange, queue, "key")


# --- Q3: properties ---


@pytest.mark.parametrize(
    ("queue_ms", "message_ms", "expired"),
    [
        (100, (0, 0), [b"0", b"1"]),
        (0, (100, 60_000, 0), [b"0"]),
        (100, (60_000,), [b"0"]),
        (60_000, (100,), [b"0"]),
    ],
    ids=["of the queue", "of one message", "the queue's is shorter", "the message's is shorter"],
)
def test_ttl(bench, queue_ms, message_ms, expired):
    """Q3, C13: a message expires by the shorter of the queue's and its own TTL, and others stay.

    It does not expire again in the dead-letter queue.
    """
    queue, dead = bench.dead_lettering(message_ttl_ms=queue_ms)
    messages = [b"%d" % number for number in range(len(message_ms))]
    for body, ttl_ms in zip(messages, message_ms, strict=True):
        bench.fill(queue, body, ttl_ms=ttl_ms)
    letters = bench.dead(dead, len(expired))
    assert [(letter.body, letter.expires) for letter in letters] == [(b, False) for b in expired]
    assert bench.drain(queue) == messages[len(expired) :]


def test_expiry_behind_a_message_that_stays(bench):
    """Q3: a message expires on time, wherever it is in the queue."""
    queue, dead = bench.queue(), bench.queue()
    later = bench.queue(message_ttl_ms=300, dead_letter_queue=dead)
    bench.fill(queue, b"stays")
    bench.fill(queue, b"expires", ttl_ms=100)
    bench.fill(later, b"clock")
    bench.wait_ready(dead, 1)  # well after the other message's expiry
    bench.expect("ready messages after the second of two expired", bench.ready(queue), 1)
    assert bench.drain(queue) == [b"stays"]


@pytest.mark.parametrize("overflow", ["reject-publish", "drop-head"])
def test_each_message_counts_its_own_bytes(bench, overflow):
    """Q3, P8: a large message to another queue in the same frame takes no room in this one."""
    small, large = bench.queue(max_bytes=1_000, overflow=overflow), bench.queue()
    publisher = bench.publisher()
    publisher.publish_all(
        Message(small, b"a" * 10), Message(large, bytes(100_000)), Message(small, b"b" * 10)
    )
    assert publisher.answers.all().confirmed == {1, 2, 3}
    assert bench.drain(small) == [b"a" * 10, b"b" * 10]


@pytest.mark.parametrize(
    ("overflow", "options", "taken_by_it"),
    [
        ("drop-head", {"prefetch": 0}, 10),
        ("drop-head", {"prefetch": 3}, 3),
        ("reject-publish", {"no_ack": True}, 10),
    ],
    ids=["all", "three", "without acks"],
)
def test_what_a_consumer_takes_has_room(bench, overflow, options, taken_by_it):
    """Q3, C10: ten messages at once reach a consumer with room just as ten one by one.

    What it takes is neither dropped nor, without acks, refused.
    """
    queue, channel = bench.queue(max_length=2, overflow=overflow), bench.channel()
    consume(bench, channel, queue, **options)
    messages = [b"%d" % number for number in range(10)]
    bench.fill(queue, *messages)
    assert bodies(taken(channel, taken_by_it)) == messages[:taken_by_it]
    assert bench.drain(queue) == messages[taken_by_it:][-2:]


def test_bytes_count_keys_and_headers(bench):
    """Q3: a message's bytes include its key and headers."""
    queue, publisher = bench.queue(max_bytes=1_000), bench.publisher()
    for _ in range(2):
        publisher.publish_and_wait(queue, bytes(400), headers={"h": "x" * 500})
    fitting = len(publisher.answers.confirmed)
    bench.expect("messages of 400 bytes with 500 bytes of headers in 1,000 bytes", fitting, 1)


def test_length_counts_unacked_messages(bench):
    """Q3: for reject-publish an unacked message counts, as it may be requeued."""
    queue = bench.filled(b"a", b"b", max_length=2)
    channel = bench.channel()
    channel.get(queue)
    publisher = bench.publisher()
    publisher.publish_and_wait(queue, b"c")
    nacked = len(publisher.answers.nacked)
    bench.expect("nacked with one ready and one unacked message of two", nacked, 1)


def test_requeue_is_never_refused(bench):
    """Q3: a requeue into a full queue that rejects publishes is never refused."""
    assert requeued_when_full(bench, "reject-publish") == [b"a", b"b"]


def test_requeue_drops_nothing(bench):
    """Q3: a requeue into a full drop-head queue drops nothing."""
    after = requeued_when_full(bench, "drop-head")
    bench.expect("messages after the requeue", after, [b"a", b"b", b"c", b"d"])


def requeued_when_full(bench, overflow):
    """The messages of a full queue of two, after two unacked ones are requeued."""
    queue = bench.filled(b"a", b"b", max_length=2, overflow=overflow)
    channel = bench.channel()
    channel.get(queue, 2)
    if overflow == "drop-head":
        bench.fill(queue, b"c", b"d")
    channel.settle(2, Outcome.RELEASED, multiple=True)
    return bench.drain(queue)


def test_queue_expiry(bench):
    """Q3: an unused queue expires; one with a consumer stays."""
    used = eventually("a consumer in time", lambda: used_queue(bench))
    unused = bench.queue(expires_ms=1_000)
    # Looking at a queue is a use of it, so this looks less often than queues expire.
    eventually("its expiry", lambda: gone(bench, unused), every_s=1.3)
    assert not gone(bench, used)


def used_queue(bench):
    """A queue that expires, with a consumer; None if it expired before the consumer came."""
    queue = bench.queue(expires_ms=1_000)
    with contextlib.suppress(Refused):
        consume(bench, bench.channel(), queue)
        return queue
    return None


def consume(bench, channel, queue, **options):
    """Starts a consumer, and waits until the broker counts it; returns its name."""
    consumer = channel.consume(queue, **options)
    eventually("the consumer", lambda: bench.broker.counts(queue).consumers, equals(1))
    return consumer


def gone(bench, queue):
    """Whether a queue does not exist."""
    try:
        bench.broker.counts(queue)
    except Refused as refused:
        if refused.condition != "not_found":
            raise
        return True
    return False


# --- Q4: purge and delete ---


def test_delete_refuses_a_queue_that_is_not_empty_if_asked(bench):
    """Q4: a delete with `if_empty` refuses a queue that is not empty.

    Another returns the number of ready messages deleted with the queue.
    """
    empty, queue = bench.queue(), bench.filled(b"a", b"b")
    with refused_as("precondition_failed"):
        bench.broker.delete(queue, if_empty=True)
    assert bench.ready(queue) == 2
    assert bench.broker.delete(queue) == 2
    assert gone(bench, queue)
    assert bench.broker.delete(empty, if_empty=True) == 0


def test_delete_refuses_a_queue_in_use(bench):
    """Q4: a queue with a consumer is not deleted; without one it is."""
    queue = bench.queue()
    channel = bench.channel()
    consume(bench, channel, queue)
    with refused_as("precondition_failed"):
        bench.broker.delete(queue)
    channel.close()
    eventually("no consumer", lambda: bench.broker.counts(queue).consumers == 0)
    bench.broker.delete(queue)
    assert gone(bench, queue)


def test_delete_refuses_a_dead_letter_target(bench):
    """Q4: a queue that is another one's dead-letter queue is in use, and not deleted."""
    dead = bench.queue()
    bench.queue(dead_letter_queue=dead)
    refused = refuses(bench.broker.delete, dead)
    bench.expect("a dead-letter target is not deleted", refused, by_rule=True)


def test_delete_refuses_a_queue_with_unacked_messages(bench):
    """Q4: a queue with unacked messages is not deleted."""
    queue, channel = bench.filled(b"held"), bench.channel()
    channel.get(queue)
    refused = refuses(bench.broker.delete, queue)
    bench.expect("a queue with an unacked message is not deleted", refused, True)


def test_delete_of_a_missing_queue(bench):
    """Q4: deleting a missing queue is an error."""
    missing = refuses(bench.broker.delete, bench.name("missing"))
    bench.expect("the delete of a queue that is not there is refused", missing, True)


def refuses(call, queue):
    """Whether a call of the broker for a queue is refused."""
    try:
        call(queue)
    except Refused:
        return True
    return False


def test_rejected_after_a_forced_delete(bench):
    """Q4, C13: a message unacked when its queue is deleted can still be dead-lettered."""
    queue, dead = bench.dead_lettering(b"held")
    channel = bench.channel()
    (held,) = channel.get(queue)
    bench.broker.delete(queue, force=True)
    channel.settle(held, Outcome.REJECTED)
    letters = bodies(bench.dead_now(dead))
    bench.expect("dead letters of a queue that was deleted", letters, [b"held"])


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.RELEASED])
def test_forced_delete(bench, outcome):
    """Q4: a forced delete ends the consumers; their unacked messages can still be settled.

    One that is requeued is dropped, also if the queue's name is declared again.
    """
    queue = bench.filled(b"held", b"ready")
    channel = bench.channel()
    consumer = channel.consume(queue, prefetch=1)
    held = channel.delivery()
    assert bench.broker.delete(queue, force=True) == 1
    assert channel.cancelled() == consumer
    bench.queue(queue)
    channel.settle(held, outcome)
    assert bench.drain(queue) == []


# --- Q5: browse ---


def test_browse(ackq):
    """Q5: a browse reads from any position, marks unacked messages, and consumes nothing."""
    queue = ackq.filled(b"a", b"b", b"c", b"d")
    channel = ackq.channel()
    channel.get(queue, 2)
    for _ in range(2):
        rows = browsed(ackq, queue)
        assert [row["body"] for row in rows] == [b"a", b"b", b"c", b"d"]
        assert [row["leased"] for row in rows] == [True, True, False, False]
    positions = [row["position"] for row in rows]
    assert positions == sorted(positions)
    rest = browsed(ackq, queue, first_position=positions[1], max_messages=2)
    assert [row["body"] for row in rest] == [b"b", b"c"]
    (first, second, *_) = positions
    found = browsed(ackq, queue, first_position=first, last_position=second)
    assert [row["body"] for row in found] == [b"a", b"b"]
    assert ackq.ready(queue) == 2


def browsed(ackq, queue, **bounds):
    """The rows of a browse."""
    batches = ackq.broker.admin.browse(queue, **bounds)
    return [row for batch in batches for row in batch.to_pylist()]


# --- Q6: redrive ---


def rejected(ackq, *messages, reasons=()):
    """A queue and its dead-letter queue, to which these messages were rejected."""
    queue, dead = ackq.dead_lettering(*messages)
    channel = ackq.channel()
    channel.get(queue, len(messages))
    for tag, reason in enumerate(reasons or [""] * len(messages), start=1):
        channel.settle(tag, Outcome.REJECTED, reason=reason)
    ackq.wait_ready(dead, len(messages))
    return queue, dead


def test_redrive_by_count_and_position(ackq):
    """Q6: a redrive can be limited by count and by positions."""
    queue, dead = rejected(ackq, b"a", b"b", b"c", b"d")
    positions = [row["position"] for row in browsed(ackq, dead)]
    assert ackq.broker.redrive(dead, first_position=positions[1], max_messages=2) == (2, 1)
    assert ackq.drain(queue) == [b"b", b"c"]
    assert ackq.broker.redrive(dead, last_position=positions[0]) == (1, 0)
    assert ackq.drain(queue) == [b"a"]
    assert ackq.drain(dead) == [b"d"]


def test_redrive_by_reason_and_to_another_queue(ackq):
    """Q6, C13: a redrive can select by cause and reason, and move to a named queue.

    By default dead letters go back to the queue they came from, without the headers of their death.
    """
    queue, dead = rejected(ackq, b"a", b"b", b"c", reasons=("bad", "late", "bad"))
    other = ackq.queue()
    assert ackq.broker.redrive(dead, cause="rejected", reason="bad", to_queue=other) == (2, 0)
    assert ackq.drain(other) == [b"a", b"c"]
    assert ackq.broker.redrive(dead, cause="expired") == (0, 0)
    assert ackq.broker.redrive(dead) == (1, 0)
    assert (ackq.ready(queue), ackq.ready(dead)) == (1, 0)
    (again,) = ackq.channel().get(queue, 2)
    assert (again.body, again.headers) == (b"b", {})


def test_redrive_without_the_queue(ackq):
    """Q6: a dead letter whose queue was deleted stays, and is counted."""
    queue, dead = rejected(ackq, b"a")
    ackq.fill(dead, b"never dead")
    ackq.broker.delete(queue, force=True)
    assert ackq.broker.redrive(dead) == (0, 2)
    assert ackq.drain(dead) == [b"a", b"never dead"]


# --- Q7: restart ---


def test_restart(bench):
    """Q7, P4, P5, P13: a kill -9 keeps all that is durable and was answered, in its order.

    Durable queues, their bindings and persistent messages are kept, including unacked and committed
    ones; transient messages, non-durable queues and uncommitted messages are not.
    """
    queue, exchange, volatile = bench.queue(), bench.exchange("topic"), bench.queue(durable=False)
    bench.broker.bind(exchange, queue, "a.#")
    bench.fill(queue, b"1", b"2", b"3")
    bench.fill(queue, b"transient", persistent=False)
    bench.fill(volatile, b"volatile")
    channel = bench.channel()
    channel.settle(channel.get(queue, 2)[1])
    transaction = bench.publisher(Mode.TRANSACTION)
    transaction.publish(queue, b"4")
    transaction.commit()
    transaction.publish(queue, b"not committed")
    bench.broker.crash()
    publisher = bench.publisher()
    publisher.publish("a.b", b"5", exchange=exchange)
    assert publisher.answers.all().confirmed == {1}
    assert gone(bench, volatile)
    after = bench.channel().get(queue, 10)
    assert bodies(after) == [b"1", b"3", b"4", b"5"]
    bench.expect(
        "which of four messages are marked as redelivered",
        [delivery.redelivered for delivery in after],
        [True, False, False, False],
    )


def test_dead_letter_of_a_non_durable_queue_survives(bench):
    """Q7, C13, P12: a persistent message dead-lettered to a durable queue survives a kill -9."""
    dead = bench.queue()
    queue = bench.queue(durable=False, dead_letter_queue=dead)
    bench.fill(queue, b"persistent")
    bench.fill(queue, b"transient", persistent=False)
    channel = bench.channel()
    for delivery in channel.get(queue, 2):
        channel.settle(delivery, Outcome.REJECTED)
    bench.wait_ready(dead, 2)
    bench.fill(dead, b"later")
    bench.broker.crash()
    found = bench.channel().get(dead, 10)
    assert [(delivery.body, delivery.persistent) for delivery in found] == [
        (b"persistent", True),
        (b"later", True),
    ]


# --- Q8: clock and history ---


@pytest.fixture
def clock(ackq):
    """Returns a function that sets the broker's wall clock, which is reset at the end."""
    yield ackq.broker.set_clock
    ackq.broker.set_clock(0)


def test_time_never_runs_backwards(ackq, clock):
    """Q8: when the machine's clock is set back, the broker's time stands still."""
    queue = ackq.filled(b"before")
    clock(-3600)
    ackq.fill(queue, b"after")
    before, after = (row["published_at"] for row in browsed(ackq, queue))
    assert before <= after


def test_a_clock_that_jumps_expires_nothing(ackq, clock):
    """Q8: after a forward clock jump long TTLs wait with a warning, and short ones still expire."""
    queue, dead = ackq.queue(message_ttl_ms=60_000), ackq.queue()
    short = ackq.queue(message_ttl_ms=100, dead_letter_queue=dead)
    ackq.fill(queue, b"stays")
    clock(3600)
    ackq.fill(short, b"expires")
    assert bodies(ackq.dead(dead)) == [b"expires"]
    assert ackq.drain(queue) == [b"stays"]
    assert "clock jumped ahead by 3" in ackq.broker.process.log_file.read_text()
