"""Limits that a link learns from RabbitMQ's real management API, and their effects."""

import asyncio

import pytest

from ackq_link.adapter import Limits
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp091.management import Management
from ackq_link.amqp091.source import QueueSource
from tests.eventually import equals
from tests.wire.links.conftest import events, eventually, refused
from tests.wire.links.managed.node import PASSWORD


@pytest.fixture
def seer(user_of):
    """A user who may use the management API, and nothing more."""
    return user_of(tags=("management",))


@pytest.fixture
def source(node):
    """Returns a function that makes a source with the management API."""

    def make(queue, user):
        address = BrokerAddress(f"amqp://127.0.0.1:{node.port}", user, PASSWORD)
        return QueueSource(
            address, queue, "link", Limits(20, 1 << 20), management=Management(node.api)
        )

    return make


@pytest.fixture
def policy(node):
    """Returns a function that gives a queue a policy for the duration of the test."""
    made = set()

    def give(queue, **definition):
        made.add(queue.queue)
        keys = {name.replace("_", "-"): value for name, value in definition.items()}
        node.set_policy(queue.queue, f"^{queue.queue}$", keys)

    yield give
    for each in made:
        node.delete("policies", "/", each)


def learnt(source):
    """The limits that a source learns; the API reports a policy a moment after it was set."""
    return asyncio.run(source.learn())


def first_learnt(source):
    """The limits that a source learns once the API has statistics of the queue."""
    return eventually("statistics", lambda: learnt(source), lambda found: not found.warnings)


ARGUMENTS = [
    ("quorum", {}, 0, False, None),
    ("quorum", {"delivery_limit": 5}, 5, False, None),
    ("quorum", {"dead_letter_exchange": ""}, 0, True, None),
    ("classic", {"dead_letter_exchange": ""}, 0, True, None),
    # RabbitMQ 3.10 stores it only.
    ("classic", {"consumer_timeout": 90_000}, 0, False, 90),
    ("classic", {"single_active_consumer": True}, 0, False, None),
    ("quorum", {"single_active_consumer": True}, 0, False, None),
]


def test_arguments(queue_of, source, seer):
    """L14, L17: a source learns the queue's kind, limits and dead-letter exchange.

    A single active consumer is noted, without a warning before 4.3.
    """
    to = {"dead_letter_routing_key": queue_of().queue}
    given = [each | to if "dead_letter_exchange" in each else each for _, each, *_ in ARGUMENTS]
    queues = [queue_of(kind, **each) for (kind, *_), each in zip(ARGUMENTS, given, strict=True)]
    for queue, (kind, arguments, *expected) in zip(queues, ARGUMENTS, strict=True):
        found = first_learnt(source(queue.queue, seer))
        assert [found.delivery_limit, found.dead_letters, found.consumer_timeout_s] == expected
        assert found.kind == kind
        assert found.single_active == ("single_active_consumer" in arguments)
        assert len(found.notes) == found.single_active
        assert all("another consumer or link waits" in note for note in found.notes)


def test_policies(queue_of, source, seer, policy):
    """L14: the smaller delivery limit of policy and argument applies, also after a change."""
    queue = queue_of("quorum", delivery_limit=5)
    there = source(queue.queue, seer)
    kept = {"dead_letter_exchange": "", "dead_letter_routing_key": queue_of().queue}
    policy(queue, delivery_limit=3, **kept)
    found = eventually("the policy", lambda: learnt(there), lambda each: each.delivery_limit == 3)
    assert found.dead_letters is True
    policy(queue, delivery_limit=7)
    found = eventually("the policy", lambda: learnt(there), lambda each: each.delivery_limit == 5)
    assert (found.dead_letters, found.warnings) == (False, ())
    for dropping in (
        {"dead_letter_exchange": "none"},
        {"dead_letter_exchange": "amq.fanout"},
        {"dead_letter_exchange": "", "dead_letter_routing_key": "none"},
    ):
        policy(queue, delivery_limit=7, **dropping)
        found = eventually("the policy", lambda: learnt(there), lambda each: each.warnings)
        assert found.dead_letters is False
        policy(queue, delivery_limit=7, **kept)
        eventually("the policy", lambda: learnt(there), lambda each: each.dead_letters)


def test_a_user_who_may_not_ask(queue_of, user_of, edge, inbound):
    """L14: without permission for the API a link warns with the remedy, and uses given limits."""
    user = user_of()
    queue = queue_of("quorum", delivery_limit=5)
    queue.publish(range(3))
    link = inbound(queue, user)
    eventually("the messages", lambda: edge.ready, equals(3))
    said = events(link, "limits_warning")[0]["message"]
    assert f"rabbitmqctl set_user_tags {user} management" in said
    assert "uses the limits that its configuration gives" in said
    assert link.stop() == 0
    assert PASSWORD not in link.log


def test_a_limit_without_dead_letters_is_refused(queue_of, source, seer, edge, inbound, policy):
    """L14: a learnt limit without dead letters refuses the link; the named policy fixes it."""
    queue = queue_of("quorum", delivery_limit=5)
    queue.publish(range(3))
    first_learnt(source(queue.queue, seer))
    link = inbound(queue, seer)
    end = refused(link, edge)
    assert "drops a message at its delivery 6, and has no dead-letter exchange" in end
    line = f"rabbitmqctl set_policy -p '/' 'ackq-{queue.queue}' '^{queue.queue}$'"
    assert line in end
    assert '\'{"dead-letter-exchange":"EXCHANGE"}\' --apply-to queues' in end
    assert queue.ready == 3
    policy(queue, dead_letter_exchange="", dead_letter_routing_key=queue_of().queue)
    eventually("the messages", lambda: _starts(link, edge))
    assert link.stop() == 0


def test_an_auto_delete_queue_is_refused(queue_of, seer, edge, inbound):
    """L14: RabbitMQ would delete it, with its messages, when the link ends its consumer."""
    queue = queue_of()
    queue.delete()
    queue.call(lambda channel: channel.queue_declare(queue.queue, durable=True, auto_delete=True))
    queue.publish(range(3))
    assert "is an auto-delete queue" in refused(inbound(queue, seer), edge)
    assert queue.ready == 3


def test_a_queue_that_is_created_again_as_a_stream(queue_of, seer, edge, inbound):
    """L14: it ends a running link at its first delivery, although the API knew another queue."""
    queue = queue_of("quorum")
    queue.publish(range(3))
    link = inbound(queue, seer)
    eventually("the messages", lambda: edge.ready, equals(3))
    queue.delete()
    queue.kind = "stream"
    queue.declare()

    def ended():
        queue.publish([3])  # the link gets what comes after it has connected
        return link.ended is not None or edge.ready > 3

    eventually("its end", ended)
    assert (link.ended, edge.ready) == (2, 3)
    assert "is a stream" in link.log.splitlines()[-1]


def _starts(link, edge):
    """Whether the link has taken all messages; starts a link that was refused again."""
    if link.ended is not None:
        link.start()
    return edge.ready == 3
