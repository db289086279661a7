"""Held messages that RabbitMQ removes are logged, and no others."""

import time

import pytest

from tests.eventually import equals
from tests.wire.links.conftest import events, eventually, info, take
from tests.wire.links.scenarios import drained

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
def held(rabbit, edge, inbound, changed):
    """A link that held all messages and was killed, before it is started again."""
    rabbit.publish(range(HELD))
    link = inbound(rabbit, heartbeat=1, env=changed(QUICK))
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
    assert "processed at the local broker nevertheless" in told["message"]
    rabbit.publish(range(HELD, HELD + 5))
    take(accepting, HELD + 5)
    accepting.step()  # unlike `drained` it does not need the vanished messages to be permitted
    eventually("the messages", lambda: edge.total, equals(0))
    assert accepting.ids == list(range(HELD + 5))
    assert held.stop() == 0
    assert vanished(held) == [HELD]


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
