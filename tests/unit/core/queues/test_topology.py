"""Queues, exchanges, bindings: names, limits and warnings."""

import pytest

from ackq.errors import InUseError, InvalidArgumentError, LimitError
from ackq_broker.core import commands as c
from ackq_broker.core import records
from tests.unit.core.harness import refused


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
def test_a_declare_warns_of_what_has_no_effect(harness, properties, words):
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


NO_NAMES = ["a,b", "a*", "a?", "a\nb", "a\x1b[0m", "a\u2028b", "a\u202eb"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is empty"),
        ("ackq.mine", "reserved for the broker"),
        ("ä" * 128, "has 256 bytes"),
        *((name, "its name has '") for name in NO_NAMES),
    ],
)
def test_names_are_checked(harness, name, message):
    """I6, A7: a name has a bound, is of one line and no pattern; a built-in prefix is reserved."""
    for command in (c.DeclareQueue(name), c.DeclareExchange(name, "direct", durable=True)):
        refused(InvalidArgumentError, message, harness.do, command)
    assert harness.do(c.DeclareQueue("ä" * 127)).created is True


def test_the_built_in_queue_is_declared_as_it_is(harness):
    """O7, C13: definitions that have it can be imported, there and elsewhere."""
    for created in (True, False):
        assert harness.do(c.DeclareQueue("ackq.dead")).created is created
    refused(InvalidArgumentError, "reserved", harness.declare, "ackq.dead", max_length=5)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"message_ttl_ms": 1 << 50}, "message_ttl_ms 1125899906842624: it must be 0 to"),
        ({"expires_ms": -1}, "expires_ms -1"),
        ({"redelivery_delay_ms": 5, "redelivery_delay_max_ms": 4}, "0 means 5 minutes"),
        ({"dead_letter_queue": "d" * 256}, "has 256 bytes"),
        ({"overflow": "drop-tail"}, "reject-publish, drop-head"),
    ],
)
def test_impossible_properties_are_refused(harness, properties, message):
    """Q3: the refusal names the property and its allowed values."""
    refused(InvalidArgumentError, message, harness.declare, "q", **properties)


def test_the_number_of_objects_is_bounded(harness, monkeypatch):
    """I6: at the limit existing queues, exchanges and bindings can be declared again."""
    for limit in ("MAX_QUEUES", "MAX_EXCHANGES", "MAX_BINDINGS"):
        monkeypatch.setattr(f"ackq.limits.{limit}", 1)
    for _ in range(2):
        harness.declare("q")
        harness.bind("x", "direct", q="k")
    for command, kind in (
        (c.DeclareQueue("r"), "queues"),
        (c.DeclareExchange("y", "direct"), "exchanges"),
        (c.Bind("x", "q", "other"), "bindings"),
    ):
        refused(LimitError, f"1 {kind}", harness.do, command)
    harness.do(c.Unbind("x", "q", "k"))
    # A binding key has the same bound as a routing key.
    refused(InvalidArgumentError, "has 256 bytes", harness.do, c.Bind("x", "q", "k" * 256))
    assert harness.do(c.Bind("x", "q", "k" * 255)) is True


def test_delete_refuses_a_queue_in_use(harness):
    """Q4: sessions, leases of absent owners and stages are uses; each is named."""
    harness.declare_filled("q", 2)
    harness.stage("w", 1, ["q"], name="stage-")
    refused(InUseError, "1 staged message", harness.do, c.DeleteQueue("q"))
    harness.do(c.AbortBatch("w", 1, (b"stage-".ljust(16),)))
    harness.open("q").advance(0, max_messages=1)
    refused(InUseError, r"1 session \(s\) and 1 unacked message", harness.do, c.DeleteQueue("q"))
    harness.do(c.ReleaseSession("s"))
    refused(InUseError, "holds 2 messages", harness.do, c.DeleteQueue("q", if_empty=True))
    assert harness.do(c.DeleteQueue("q")) == c.DeletedQueue(2, 0)


def test_an_old_name_goes_on(harness):
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
