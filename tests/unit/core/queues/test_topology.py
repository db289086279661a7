"""Queues, exchanges, bindings: declare, purge, delete, browse."""

import pytest

from ackq.errors import (
    ExchangeNotFoundError,
    InUseError,
    InvalidArgumentError,
    LimitError,
    PropertiesDifferError,
    QueueNotFoundError,
)
from ackq_broker.core import commands as c
from ackq_broker.core import records, views
from tests.unit.core.harness import Harness, block_rows, labels


def test_declare_is_idempotent(harness: Harness) -> None:
    """Q1: the same declare again finds the queue and changes nothing."""
    first = harness.do(c.DeclareQueue("q", c.QueueProperties(max_length=5)))
    again = harness.decide(c.DeclareQueue("q", c.QueueProperties(max_length=5)))
    assert first == c.DeclaredQueue(1, True)
    assert again.reply == c.DeclaredQueue(1, False)
    assert again.records == ()


def test_a_declare_with_other_properties_is_refused(harness: Harness) -> None:
    """Q1: the refusal names the properties that differ."""
    harness.declare("q", max_length=5)
    with pytest.raises(PropertiesDifferError, match="max_length is 5, asked for 6") as caught:
        harness.declare("q", max_length=6)
    assert caught.value.fields["queue"] == "q"


def test_a_passive_declare_only_looks(harness: Harness) -> None:
    """Q1: it compares no properties and makes no queue."""
    with pytest.raises(QueueNotFoundError, match="ackq queue declare q"):
        harness.do(c.DeclareQueue("q", passive=True))
    harness.declare("q", max_length=5)
    assert harness.do(c.DeclareQueue("q", passive=True)) == c.DeclaredQueue(1, False)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"delivery_limit": 3}, ["delivery limit of queue 'q' has no effect"]),
        ({"delivery_limit": 3, "drop_on_limit": True}, []),
        ({"delivery_limit": 3, "dead_letter_queue": "dead"}, []),
        ({"dead_letter_queue": "q"}, []),
        ({"dead_letter_queue": "late"}, ["'late' of queue 'q' does not exist"]),
    ],
)
def test_a_declare_warns_of_what_has_no_effect(
    harness: Harness, properties: dict[str, object], words: list[str]
) -> None:
    """Q1, C13: each declare warns, until the dead-letter queue exists."""
    harness.declare("dead")
    declare = c.DeclareQueue("q", c.QueueProperties(**properties))
    for command in (declare, declare, c.DeclareQueue("q", passive=True)):
        warnings = harness.do(command).warnings
        assert len(warnings) == len(words)
        assert all(word in said for word, said in zip(words, warnings, strict=True))
    if "late" in properties.values():
        harness.declare("late")
        assert harness.do(declare).warnings == ()


def test_a_redeclared_name_is_another_queue(harness: Harness) -> None:
    """Q1: ids are never reused, so no message of the old queue reaches the new one."""
    harness.declare("q")
    harness.do(c.DeleteQueue("q"))
    assert harness.do(c.DeclareQueue("q")) == c.DeclaredQueue(2, True)


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "is empty"), ("ackq.mine", "reserved for the broker"), ("ä" * 128, "has 256 bytes")],
)
def test_names_are_checked(harness: Harness, name: str, message: str) -> None:
    """I6: names have a bound, and the prefix of built-in objects is reserved."""
    with pytest.raises(InvalidArgumentError, match=message):
        harness.declare(name)
    with pytest.raises(InvalidArgumentError):
        harness.do(c.DeclareExchange(name, "direct"))
    assert harness.do(c.DeclareQueue("ä" * 127)).created is True


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"message_ttl_ms": 1 << 50}, "message_ttl_ms 1125899906842624: it must be 0 to"),
        ({"expires_ms": -1}, "expires_ms -1"),
        ({"redelivery_delay_ms": 5, "redelivery_delay_max_ms": 4}, "0 means 5 minutes"),
        ({"dead_letter_queue": "d" * 256}, "has 256 bytes"),
    ],
)
def test_impossible_properties_are_refused(
    harness: Harness, properties: dict[str, object], message: str
) -> None:
    """Q3: the refusal names the property and its allowed values."""
    with pytest.raises(InvalidArgumentError, match=message):
        harness.declare("q", **properties)


def test_an_unknown_overflow_is_refused(harness: Harness) -> None:
    """Q3: the refusal names reject-publish and drop-head."""
    with pytest.raises(InvalidArgumentError, match="reject-publish, drop-head"):
        harness.declare("q", overflow="drop-tail")


def test_the_number_of_queues_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: a declare over the limit names the limit."""
    monkeypatch.setattr("ackq.limits.MAX_QUEUES", 1)
    harness.declare("q")
    harness.declare("q")
    with pytest.raises(LimitError, match="1 queues"):
        harness.declare("r")


def test_the_number_of_exchanges_and_bindings_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: existing exchanges and bindings can be declared again at the limit."""
    monkeypatch.setattr("ackq.limits.MAX_EXCHANGES", 1)
    monkeypatch.setattr("ackq.limits.MAX_BINDINGS", 1)
    harness.declare("q")
    for _ in range(2):
        harness.bind("x", "direct", q="k")
    with pytest.raises(LimitError, match="1 exchanges"):
        harness.do(c.DeclareExchange("y", "direct"))
    with pytest.raises(LimitError, match="1 bindings"):
        harness.do(c.Bind("x", "q", "other"))
    harness.do(c.Unbind("x", "q", "k"))
    assert harness.do(c.Bind("x", "q", "other")) is True


def test_long_binding_keys_are_refused(harness: Harness) -> None:
    """I6: a binding key has the same bound as a routing key."""
    harness.declare("q")
    harness.bind("x", "direct", q="k" * 255)
    with pytest.raises(InvalidArgumentError, match="has 256 bytes"):
        harness.do(c.Bind("x", "q", "k" * 256))


def test_exchanges_are_declared_once(harness: Harness) -> None:
    """Q2: a declare is idempotent; another type or durability is refused."""
    assert harness.do(c.DeclareExchange("x", "topic")) is True
    assert harness.do(c.DeclareExchange("x", "topic")) is False
    with pytest.raises(PropertiesDifferError, match="a durable topic exchange"):
        harness.do(c.DeclareExchange("x", "direct"))
    with pytest.raises(InvalidArgumentError, match="direct, fanout, topic"):
        harness.do(c.DeclareExchange("y", "headers"))


def test_the_default_exchange_routes_by_queue_name(harness: Harness) -> None:
    """Q2: the default exchange always exists and cannot be bound or deleted."""
    harness.declare_filled("q", 1)
    assert harness.ready("q") == 1
    for command in (c.Bind("", "q", "k"), c.Unbind("", "q", "k"), c.DeleteExchange("")):
        with pytest.raises(InvalidArgumentError, match="default exchange"):
            harness.do(command)


def test_bindings_route(harness: Harness) -> None:
    """Q2: direct by equality, fanout to all, topic by pattern; once per queue."""
    harness.declare("a", "b")
    harness.bind("direct", "direct", a="x", b="y")
    harness.bind("fanout", "fanout", a="ignored", b="")
    harness.bind("topic", "topic", a="air.*", b="#.cancelled")
    harness.do(c.Bind("topic", "a", "air.#"))
    harness.publish(["x", "y"], exchange="direct")
    harness.publish(["any"], exchange="fanout")
    harness.publish(["air.UA", "air.UA.cancelled", "rail.cancelled"], exchange="topic")
    assert harness.browse("a") == ["m1", "m3", "m4", "m5"]
    assert harness.browse("b") == ["m2", "m3", "m5", "m6"]


def test_a_changed_binding_takes_effect_at_once(harness: Harness) -> None:
    """Q2: a changed binding clears the cached routes."""
    harness.declare("a", "b")
    harness.bind("x", "topic", a="#")
    harness.publish(["k"], exchange="x")
    assert harness.do(c.Bind("x", "b", "k")) is True
    assert harness.do(c.Bind("x", "b", "k")) is False
    assert harness.do(c.Unbind("x", "a", "#")) is True
    assert harness.do(c.Unbind("x", "a", "#")) is False
    harness.publish(["k"], exchange="x")
    assert (harness.browse("a"), harness.browse("b")) == (["m1"], ["m2"])


def test_a_deleted_queue_takes_its_bindings(harness: Harness) -> None:
    """Q2, Q4: a queue of the same name declared later is not bound."""
    harness.declare("a")
    harness.bind("x", "fanout", a="")
    harness.do(c.DeleteQueue("a"))
    harness.declare("a")
    assert list(views.list_exchanges(harness.core.state)) == [
        c.ExchangeInfo("x", "fanout", True, ())
    ]
    assert list(harness.publish(["k"], exchange="x").returned) == [1]


def test_a_deleted_exchange_takes_its_bindings(harness: Harness) -> None:
    """Q2: the reply counts the bindings."""
    harness.declare("a", "b")
    harness.bind("x", "direct", a="k", b="k")
    assert {
        pair for each in views.list_exchanges(harness.core.state) if each for pair in each.bindings
    } == {
        ("a", "k"),
        ("b", "k"),
    }
    assert harness.do(c.DeleteExchange("x")) == 2
    with pytest.raises(ExchangeNotFoundError):
        harness.do(c.Bind("x", "a", "k"))
    assert list(views.list_exchanges(harness.core.state)) == []


def test_exchanges_are_listed_in_steps(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: exchanges and bindings deleted between two steps are left out."""
    monkeypatch.setattr("ackq_broker.core.views.queues._BINDINGS", 2)
    names = [f"q{at}" for at in range(5)]
    harness.declare(*names)
    harness.bind("x", "fanout", **dict.fromkeys(names, ""))
    harness.bind("y", "fanout", q0="")
    steps = views.list_exchanges(harness.core.state)
    assert next(steps) is None
    harness.do(c.DeleteQueue("q4"))
    harness.do(c.DeleteExchange("y"))
    rest = list(steps)
    assert rest[:2] == [None, None]
    (found,) = rest[2:]
    assert found is not None
    assert {queue for queue, _ in found.bindings} == {"q0", "q1", "q2", "q3"}


def test_purge_takes_ready_messages_only(harness: Harness) -> None:
    """Q4, S7: a leased message is not purged."""
    harness.declare_filled("q", 5)
    reader = harness.lease("q", max_messages=2)
    assert harness.do(c.PurgeQueue("q")) == 3
    assert harness.do(c.PurgeQueue("q")) == 0
    assert harness.browse("q") == labels(1, 2)
    assert reader.fetch(0, 2) == labels(1, 2)


def test_delete_refuses_a_queue_in_use(harness: Harness) -> None:
    """Q4: sessions, leases of absent owners and stages are uses; each is named."""
    harness.declare_filled("q", 2)
    harness.stage("w", 1, ["q"], name="stage-")
    with pytest.raises(InUseError, match="1 staged message"):
        harness.do(c.DeleteQueue("q"))
    harness.do(c.AbortBatch("w", 1, (b"stage-".ljust(16),)))
    harness.open("q").advance(0, max_messages=1)
    with pytest.raises(InUseError, match=r"1 session \(s\) and 1 unacked message"):
        harness.do(c.DeleteQueue("q"))
    harness.do(c.ReleaseSession("s"))
    with pytest.raises(InUseError, match="holds 2 messages"):
        harness.do(c.DeleteQueue("q", if_empty=True))
    assert harness.do(c.DeleteQueue("q")) == c.DeletedQueue(2, 0)


def test_a_forced_delete_keeps_leased_bodies_until_they_are_settled(harness: Harness) -> None:
    """Q4: the reader finishes its batch; its next accept, or its end, frees the block."""
    harness.declare("q")
    block = harness.publish_to("q", 3).block_id
    reader = harness.lease("q", max_messages=2)
    assert harness.do(c.DeleteQueue("q", force=True)) == c.DeletedQueue(1, 2)
    assert views.list_queues(harness.core.state) == []
    assert reader.fetch(0, 2) == labels(1, 2)
    assert harness.core.drain_dead_blocks() == []
    harness.declare("q")
    reader.advance(2)
    assert views.list_queues(harness.core.state, "q")[0].accepted == 0
    assert harness.core.drain_dead_blocks() == []
    harness.publish_to("q", 1)
    reader.advance(2)
    reader.advance(3)
    assert harness.core.drain_dead_blocks() == [block]


def test_a_lease_released_to_a_deleted_queue_is_gone(harness: Harness) -> None:
    """Q4: a message requeued to a deleted queue is dropped and counted."""
    harness.declare("q")
    block = harness.publish_to("q", 2).block_id
    harness.open("q").advance(0)
    harness.do(c.DeleteQueue("q", force=True))
    assert harness.do(c.ReleaseSession("s")) == c.Released(0, 2)
    assert harness.core.drain_dead_blocks() == [block]


def test_browse_reads_without_consuming(harness: Harness) -> None:
    """Q5: a browse is from any position, bounded, repeatable, and marks leased messages."""
    harness.declare_filled("q", 6)
    harness.open("q").advance(0, max_messages=2)
    for _ in range(2):
        assert harness.browse("q") == labels(1, 6)
    (piece,) = views.browse(harness.core.state, "q", 2, 5)
    assert block_rows(piece) == [1, 2, 3, 4]
    assert piece.runs == (c.Run(2, 1, 1, True), c.Run(3, 3, 1, False))
    assert harness.read(views.browse(harness.core.state, "q", 2, 0, 3)) == labels(2, 4)
    assert views.browse(harness.core.state, "q", 7) == []


def test_a_browse_shows_the_gaps(harness: Harness) -> None:
    """Q5: positions stay the same when messages before them are removed."""
    harness.declare("q", "r")
    harness.publish(["q", "r", "q", "q"])
    reader = harness.lease("q", max_messages=1)
    reader.advance(1, max_messages=1)
    harness.publish_to("q", 1)
    first, second = views.browse(harness.core.state, "q")
    assert (block_rows(first), block_rows(second)) == ([2, 3], [0])
    assert first.runs == (c.Run(2, 1, 1, True), c.Run(3, 1, 1, False))
    assert second.runs == (c.Run(4, 1, 1, False),)


def test_a_browse_is_planned_along_blocks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q5: the planned pieces are of about the target size, and cover the queue."""
    monkeypatch.setattr("ackq.limits.LEASE_CHUNK_TARGET_BYTES", 60)
    harness.declare("q")
    assert views.plan_browse(harness.core.state, "q") == ()
    for _ in range(4):
        harness.publish_to("q", 3, row_bytes=10)
    assert views.plan_browse(harness.core.state, "q") == (
        c.BrowseChunk(1, 6, 6, 60),
        c.BrowseChunk(7, 12, 6, 60),
    )


def test_a_queue_as_an_operator_sees_it(harness: Harness) -> None:
    """Q4: the figures of a queue with ready, leased, accepted and staged messages."""
    harness.declare("q", "r")
    harness.publish_to("q", 4)
    published_us = harness.now_us
    harness.publish_to("q", 1)
    reader = harness.lease("q", max_messages=2)
    reader.advance(2, max_messages=1)
    harness.stage("w", 1, ["q"] * 3, name="stage-")
    (info,) = views.list_queues(harness.core.state, "q")
    assert info == c.QueueInfo(
        queue="q",
        queue_id=1,
        properties=c.QueueProperties(),
        ready=2,
        unacked=1,
        staged=3,
        payload_bytes=30,
        oldest_us=published_us,
        sessions=("s",),
        published=5,
        accepted=2,
        delivered=3,
    )
    assert [queue.queue for queue in views.list_queues(harness.core.state)] == ["q", "r"]
    with pytest.raises(QueueNotFoundError):
        views.list_queues(harness.core.state, "gone")


def test_a_binding_key_of_a_topic_has_21_words_at_most(harness: Harness) -> None:
    """Q2, I6: a longer one is refused; one that a journal has stays, and can be unbound."""
    harness.declare("q")
    harness.bind("x", "topic")
    harness.bind("d", "direct", q="a." * 40)
    with pytest.raises(LimitError, match=r"binding key .* has 22 words"):
        harness.do(c.Bind("x", "q", "#." * 21))
    old = records.QueueBound("x", 1, "#." * 21)
    harness.core.apply(harness.core.sequence + 1, old)
    assert harness.core.decide(c.Bind("x", "q", "#." * 21), harness.now_us).reply is False
    assert harness.core.decide(c.Unbind("x", "q", "#." * 21), harness.now_us).reply is True


@pytest.mark.parametrize("name", ["a,b", "a*", "a?", "a\nb", "a\x1b[0m", "a\u2028b", "a\u202eb"])
def test_a_new_name_is_no_pattern_and_one_line(harness: Harness, name: str) -> None:
    """A7: the refusal names the character that a queue or exchange name may not have."""
    with pytest.raises(InvalidArgumentError, match="its name has '"):
        harness.declare(name)
    with pytest.raises(InvalidArgumentError, match="its name has '"):
        harness.do(c.DeclareExchange(name, "direct", durable=True))


def test_an_old_name_goes_on(harness: Harness) -> None:
    """A7: a name from an older journal that is refused today is still declared and used."""
    for record in (
        records.QueueDeclared(1, "a,b*\n", c.QueueProperties()),
        records.ExchangeDeclared("x,y", "direct", True),
    ):
        for core in (harness.core, harness.mirror):
            core.apply(core.sequence + 1, record)
    assert harness.do(c.DeclareQueue("a,b*\n")) == c.DeclaredQueue(1, False)
    assert harness.do(c.DeclareExchange("x,y", "direct", durable=True)) is False
    harness.publish_to("a,b*\n", 1)
    assert harness.do(c.PurgeQueue("a,b*\n")) == 1
