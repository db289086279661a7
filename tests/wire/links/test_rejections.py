"""Rejection at the edge is forwarded to a real RabbitMQ, over kills and cuts of links (L28)."""

from functools import partial

import pytest

from ackq.client import Admin
from ackq.errors import QueueNotFoundError
from tests.eventually import equals
from tests.wire.links.conftest import events, eventually, info

COUNT = 30
REJECTED = [*range(0, COUNT, 3)]
OTHERS = sorted({*range(COUNT)} - {*REJECTED})


@pytest.fixture
def dead(queue_of, rabbit):
    """The dead-letter queue of `rabbit`, which is declared again with it."""
    queue = queue_of()
    rabbit.delete()
    rabbit.declare({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.queue})
    return queue


@pytest.fixture
def delivered(inbound, edge):
    """Returns a function that publishes, and starts a link, by default with on-reject=there."""

    def start(rabbit, **keys):
        rabbit.publish(range(COUNT))
        link = inbound(rabbit, **{"on_reject": "there", "dead_letters": True, **keys})
        eventually("the messages", lambda: edge.ready, equals(COUNT))
        return link

    return start


def dead_here(edge):
    """The number of dead letters at the edge."""
    with Admin(edge.endpoint) as admin:
        try:
            return admin.queue("ackq.dead").ready
        except QueueNotFoundError:
            return 0


def proven_dead(dead):
    """The ids of the remote dead letters, once all have come; asserts one rejection each."""
    eventually("the dead letters", lambda: dead.ready, equals(len(REJECTED)))
    taken = dead.take()
    for properties, _ in taken:
        (death,) = properties.headers["x-death"]
        assert (death["reason"], death["count"]) == ("rejected", 1)
    return sorted(int(properties.message_id) for properties, _ in taken)


def test_there(rabbit, dead, edge, delivered):
    """L28: a rejected message is a remote dead letter with cause `rejected`, not a local one."""
    link = delivered(rabbit)
    edge.settle(COUNT, REJECTED, OTHERS)
    assert proven_dead(dead) == REJECTED
    assert link.stop() == 0
    assert (rabbit.ready, dead.ready, edge.total, dead_here(edge)) == (0, 0, 0, 0)
    found = info(edge)
    assert (found.reject_there, found.rejected, found.permitted) == (True, len(REJECTED), COUNT)
    assert events(link, "stopped")[0]["rejected"] == len(REJECTED)
    assert "messages rejected at the local broker are rejected at the remote one" in link.log


def test_rejected_while_nobody_runs_the_link(classic, rabbitmq_dialect, edge, delivered):
    """L11, L28: a message rejected while no link runs is rejected at redelivery, by `discard`."""
    link = delivered(classic, on_reject="discard", dead_letters=False)
    link.kill()
    edge.settle(COUNT, REJECTED)
    eventually("the remote messages", lambda: classic.ready, equals(COUNT))
    link.start()
    left = partial(rabbitmq_dialect.messages, classic.queue)
    eventually("the remote messages", left, equals(len(OTHERS)))
    assert link.stop() == 0
    assert sorted(edge.ids) == OTHERS
    assert dead_here(edge) == 0


def test_here(rabbit, dead, edge, delivered):
    """L28: with on-reject=here a rejected message is acknowledged, and not rejected remotely."""
    link = delivered(rabbit, on_reject="here")
    edge.settle(COUNT, REJECTED)
    eventually("the permits", lambda: info(edge).permitted, equals(len(REJECTED)))
    assert link.stop() == 0
    eventually("the remote messages", lambda: rabbit.ready, equals(len(OTHERS)))
    assert dead.ready == 0
    assert info(edge).rejected == 0
