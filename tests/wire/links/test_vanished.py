"""Held messages that RabbitMQ removes are logged, and no others."""

import time

import pytest

from ackq.client import Admin, Channel
from tests.eventually import equals
from tests.wire.links.conftest import eventually, take
from tests.wire.links.test_inbound import PREFETCH, drained, events, inbound, info

HELD = 10
# A link that looks and asks the edge ten times as often, once half a second has passed, not three.
QUICK = """from ackq import limits
limits.HEARTBEAT_SEND_MS = 500
from ackq_link import transfer
from ackq_link.amqp091 import subscription
transfer._LOOK_S, subscription._MISSED_HEARTBEATS = 0.1, 0.5
"""
# Over ten looks on an idle machine; a wrong count would be logged by then.
LOOKS_S = 2


@pytest.fixture
def quick(changed):
    """The environment of a quick link."""
    return changed(QUICK)


@pytest.fixture
def held(rabbit, edge, links, quick):
    """A link that held all messages and was killed, before it is started again."""
    rabbit.publish(range(HELD))
    link = inbound(links, rabbit, edge, heartbeat=1, env=quick)
    eventually("the messages", lambda: edge.ready, equals(HELD))
    link.kill()
    eventually("the remote messages", lambda: rabbit.ready, equals(HELD))
    return link


def vanished(link):
    """The numbers of vanished messages that the link has logged."""
    return [each["messages"] for each in events(link, "vanished")]


def test_a_purge(rabbit, edge, held, accepting):
    """L18: purged messages are logged as vanished, and processed at the edge all the same."""
    rabbit.call(lambda channel: channel.queue_purge(rabbit.queue))
    held.start()
    eventually("the log", lambda: vanished(held), equals([HELD]))
    (told,) = events(held, "vanished")
    assert told["messages"] == HELD
    assert "processed at the local broker nevertheless" in told["message"]
    rabbit.publish(range(HELD, HELD + 5))
    drained_rows(edge, accepting, HELD + 5)
    assert accepting.ids == list(range(HELD + 5))
    assert held.stop() == 0
    assert len(events(held, "vanished")) == 1


def drained_rows(edge, accepting, count):
    """Accepts all; unlike `drained` it does not need the vanished messages to be permitted."""
    take(accepting, count)
    accepting.step()
    eventually("the messages", lambda: edge.total, equals(0))


def test_some_of_them(rabbit, edge, held):
    """L18: only messages that another consumer took count as vanished, once new ones follow."""
    rabbit.call(lambda channel: [channel.basic_get(rabbit.queue, auto_ack=True) for _ in range(4)])
    new = 3 * PREFETCH
    rabbit.publish(range(HELD, HELD + new))
    held.start()
    eventually("the matches", lambda: info(edge).matched_held >= HELD - 4)
    with Channel(edge.endpoint) as channel:
        consumer = channel.consume("q", mode="client", prefetch=1_000)

        def counted():
            """Accepts messages that were never held, so that the link's window moves on."""
            message = consumer.receive(0.2)
            if message is not None and int(message.message_id) >= HELD:
                message.accept().result()
            return vanished(held)

        assert eventually("the log", counted) == [4]
    assert held.stop() == 0
    assert vanished(held) == [4]


def test_expired(queue_of, edge, links, quick):
    """L18: messages that expired at RabbitMQ meanwhile are logged, and processed at the edge."""
    dead = queue_of()
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead.queue}
    queue = queue_of(message_ttl=2_000, **letters)
    link = inbound(links, queue, edge, heartbeat=1, env=quick)
    # A message that waits for the link's start expires before it is delivered.
    eventually("the consumer", lambda: queue.consumers, equals(1))
    queue.publish(range(HELD))
    eventually("the messages", lambda: edge.ready, equals(HELD))
    link.kill()
    eventually("the dead letters", lambda: dead.ready, equals(HELD))
    link.start()
    eventually("the log", lambda: vanished(link), equals([HELD]))
    assert edge.ids == list(range(HELD))
    assert link.stop() == 0


def test_what_is_late_does_not_count(rabbit, edge, held, accepting):
    """L18: messages that another consumer holds and gives back later do not count as vanished."""
    connection = rabbit.connect()
    other = connection.channel()
    other.basic_qos(prefetch_count=4)
    taken = []
    other.basic_consume(rabbit.queue, lambda _c, method, _p, _b: taken.append(method.delivery_tag))
    while len(taken) < 4:
        connection.process_data_events(1)
    held.start()
    eventually("the matches", lambda: info(edge).matched_held >= HELD - 4)
    rabbit.publish(range(HELD, HELD + 5))
    eventually("the messages", lambda: edge.ready, equals(HELD + 5))
    time.sleep(LOOKS_S)
    assert vanished(held) == []
    connection.close()
    eventually("the matches", lambda: info(edge).matched_held >= HELD)
    drained(edge, accepting, HELD + 5)
    assert held.stop() == 0
    assert vanished(held) == []
    with Admin(edge.endpoint) as admin:
        assert admin.link("link").held == 0
