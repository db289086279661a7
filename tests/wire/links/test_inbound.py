"""Inbound links with a real RabbitMQ, as processes that are killed, cut, paused and refused."""

from functools import partial

import pytest

import ackq_broker
from ackq.client import Admin, Channel, close_channels
from ackq.info import LinkInfo
from tests.eventually import SOON_S, equals
from tests.sizes import sized
from tests.wire.links.accepting import Accepting
from tests.wire.links.conftest import (
    PREFETCH,
    EdgeQueue,
    events,
    eventually,
    filled,
    info,
    refused,
    strike,
    take,
)
from tests.wire.links.scenarios import (  # noqa: F401 - scenarios of every protocol
    drained,
    finished,
    test_faults,
    test_held_too_long,
    test_settled,
    test_stored,
)


def test_settled_one_by_one(classic, rabbitmq_dialect, edge, inbound):
    """L9, L12: messages accepted in any order on a channel are exactly those acknowledged."""
    classic.publish(range(30))
    link = inbound(classic)
    eventually("the messages", lambda: edge.ready, equals(30))
    with Channel(edge.endpoint) as channel:
        consumer = channel.consume("q", mode="client")
        messages = [consumer.receive(SOON_S) for _ in range(30)]
        for message in messages[1::2]:
            message.accept().result()
        left = partial(rabbitmq_dialect.messages, classic.queue)
        eventually("the remote messages", left, equals(15))
        link.stop()
        eventually("the remote messages", lambda: classic.ready, equals(15))
        assert sorted(int(p.message_id) for p, _ in classic.take()) == list(range(0, 30, 2))


# --- kills and cuts ---


# A few messages of each kind, in turn, so that a frame has all kinds.
HEADERS = [
    None,
    {"b": "text", "a": "text"},
    {"b": 1, "a": 2},
    {"retries": 0, "async": True, "many": 2**40},
    {"table": {"b": 1, "a": [1, {"d": 2, "c": None}]}, "bytes": b"\xff\x00"},
]


def test_a_kill_with_headers_of_all_types(rabbit, edge, inbound):
    """L3, L6: messages are matched although RabbitMQ reorders headers with a delivery count."""
    each = 8
    for number in range(each * len(HEADERS)):
        headers = HEADERS[number % len(HEADERS)]
        priority = 1 if number % 3 == 0 else None
        rabbit.publish([number], headers=headers, priority=priority)
    count = each * len(HEADERS)
    link = inbound(rabbit)
    eventually("the messages", lambda: edge.ready, equals(count))
    for kill in (1, 2):
        link.kill()
        link.start()
        eventually("the matches", lambda: info(edge).matched_held, equals(kill * count))
    assert link.stop() == 0
    assert (sorted(edge.ids), info(edge).id_reused) == (list(range(count)), 0)


def test_faults_of_the_edge(classic, edge, broker, inbound, relay_to, accepting):
    """L5, L12, L17, L20: cuts here and kills of the edge lose and double nothing.

    They end no remote consumer; what was delivered is resent under its numbers.
    """
    count = 400
    relay = relay_to(edge.endpoint)
    classic.publish(range(count))
    link = inbound(classic, edge=relay.endpoint)
    strike(accepting, (80, 160), relay.cut, relay.heal)
    strike(accepting, (200, 280), broker.kill, broker.restart)
    finished(link, classic, edge, accepting, count)
    assert events(link, "stopped")[0]["cuts"] == 0


def test_rabbitmq_is_killed(rabbit, rabbitmq_dialect, edge, inbound, hasty, accepting):
    """L10, L17: messages whose acks RabbitMQ lost in a kill are redelivered and matched.

    L8: those of a quorum queue that were on their way may come after newer ones.
    """
    count = 300
    rabbit.publish(range(count))
    link = inbound(rabbit, env=hasty)
    take(accepting, count // 3)
    rabbitmq_dialect.crash()
    finished(link, rabbit, edge, accepting, count, in_order=rabbit.kind == "classic")


def test_a_queue_that_is_deleted(classic, rabbitmq_dialect, edge, inbound):
    """L17, L18: after the remote queue is deleted held messages stay, and the link goes on.

    Also when no acknowledgement was proven yet.
    """
    classic.publish(range(10))
    link = inbound(classic)
    eventually("the messages", lambda: edge.ready, equals(10))
    edge.settle(1, rejected=(), accepted=[0])
    left = partial(rabbitmq_dialect.messages, classic.queue)
    eventually("the acknowledgement", left, equals(9))
    classic.delete()
    eventually("cuts", lambda: link.ended is not None or len(events(link, "cut")) > 1)
    classic.declare()
    classic.publish(range(10, 20))
    eventually("the messages", lambda: edge.ready, equals(19))
    assert edge.ids == list(range(1, 20))


# --- holding ---


def test_a_full_edge(classic, broker, inbound):
    """L20: while the edge's queue is full the link holds at most its window, and goes on later."""
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("q", max_length=30)
        classic.publish(range(200))

        link = inbound(classic)
        eventually("edge refused", lambda: events(link, "edge_refused"))
        eventually("the messages", lambda: admin.queue("q").ready, equals(30))
        assert classic.ready >= 200 - 30 - PREFETCH
        accepting = Accepting(broker.endpoint)
        take(accepting, 200, 10)
    assert accepting.ids == list(range(200))
    assert link.stop() == 0


def test_few_lives(queue_of, edge, inbound, accepting):
    """L16: with a delivery limit of 3, ten kills of the link lose and dead-letter no message."""
    dead, count = queue_of(), 400
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead.queue}
    queue = queue_of("quorum", delivery_limit=3, **letters)
    queue.publish(range(count))
    progress = taken_more(edge)
    link = inbound(queue, delivery_limit=3, dead_letters=True, prefetch=20)
    for kill in range(sized(10, 20)):
        eventually("progress", progress)
        if kill % 4 == 0:
            accepting.step(15)
        link.kill()
        progress = taken_more(edge)  # before the start, which may take all that has room
        link.start()
    drained(edge, accepting, count)
    assert link.stop() == 0
    assert dead.ready == 0
    assert sorted(accepting.ids) == list(range(count))


def taken_more(edge):
    """Returns whether the link has taken more deliveries since this call, or holds none."""

    def found():
        with Admin(edge.endpoint) as admin:
            return next(iter(admin.links()), LinkInfo())

    before = found().taken
    return lambda: (now := found()).taken > before or (now.live and not now.held)


def test_pause(classic, edge, inbound, accepting):
    """L25: a paused link takes no more, goes on to acknowledge, and gives back held deliveries."""
    classic.publish(range(30))
    link = inbound(classic)
    eventually("the messages", lambda: edge.ready, equals(30))
    with Admin(edge.endpoint) as admin:
        admin.pause_link("link")
        eventually("paused", lambda: events(link, "paused"))
        classic.publish(range(30, 40))
        accepting.step(30)
        accepting.step(30)
        eventually("the permits", lambda: info(edge).permitted, equals(30))
        eventually("the remote messages", lambda: classic.ready, equals(10))
        assert edge.total == 0
        admin.pause_link("link", paused=False)
    finished(link, classic, edge, accepting, 40)


# --- refusals ---


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"broker_queue": "nowhere"}, "Declare it at that broker"),
        ({"broker": "amqp://nobody@127.0.0.1:{port}"}, "refuses user 'nobody'"),
        ({"broker": "amqps://127.0.0.1:{port}"}, "TLS failed"),
        ({"broker": "amqp://127.0.0.1:{port}/none"}, "virtual host"),
        ({"queue": "none"}, "'none'"),
        ({"queue": "head"}, "reject-publish"),
        ({"delivery_limit": 5}, "rabbitmqctl set_policy -p '/' 'ackq-{queue}' '^{queue}$'"),
        (
            {"on_reject": "there", "delivery_limit": 0},
            "'ackq-{queue}' '^{queue}$' '{{\"dead-letter-exchange\":",
        ),
        (
            {"on_reject": "there", "ack": "stored"},
            "acknowledged at the remote broker cannot be rejected",
        ),
    ],
)
def test_what_is_refused_at_the_start(classic, edge, inbound, change, remedy):
    """L13, L14, L17, L28: a start that cannot work exits with 2, the remedy, and nothing taken."""
    classic.publish([0])
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("head", max_length=5, overflow="drop-head")
    values = {"port": classic.port, "queue": classic.queue}
    assert remedy.format(**values) in refused(inbound(classic, **filled(change, **values)), edge)
    eventually("the remote messages", lambda: classic.ready, equals(1))


def test_another_origin_key(classic, edge, inbound):
    """L2: a link with another rule for origin keys would double what it holds, and is refused."""
    classic.publish(range(5))
    link = inbound(classic)
    eventually("the messages", lambda: edge.ready, equals(5))
    assert link.stop() == 0
    other = inbound(classic, origin_key="fingerprint")
    eventually("its end", lambda: other.ended is not None or edge.ready > 5)
    assert (other.ended, edge.ids) == (2, [*range(5)])
    assert "key message_id" in other.log.splitlines()[-1]


def test_two_of_one_name(classic, inbound, low, talkative, tmp_path):
    """L1: a second process of a link is refused while the first is live, and then takes over.

    RabbitMQ frees the first one's deliveries when it misses its heartbeats. When the first
    continues, it finds itself fenced, or, if the edge has cut its connection meanwhile, the second
    in its place, and ends: it stores and acknowledges nothing more. The edge misses a process that
    has stopped after 5 s instead of 15, and the one to be refused asks for 1 s instead of 30.
    """
    with ackq_broker.embedded(tmp_path / "own") as broker:
        edge = EdgeQueue(broker.endpoint)
        classic.publish(range(4))
        inbound = partial(inbound, classic, edge=edge.endpoint)
        first = inbound(heartbeat=1, env=talkative)
        eventually("the messages", lambda: edge.ready, equals(4))
        refused = inbound(env=low(HEARTBEAT_MS=500))
        assert eventually("its end", lambda: refused.ended) == 2
        assert "link link" in refused.log.splitlines()[-1]
        broker.restart(env=low(HEARTBEAT_MS=5_000))
        classic.publish([4])
        eventually("the first one there again", lambda: edge.ready, equals(5))
        first.pause()
        before = info(edge).matched_held
        second = inbound(heartbeat=1, env=talkative)
        eventually("the matches", lambda: info(edge).matched_held >= before + 5)
        accepting = Accepting(edge.endpoint)
        take(accepting, 2, 2)
        first.resume()
        assert eventually("its end", lambda: first.ended) == 2
        end = first.log.splitlines()[-1]
        fenced = (
            "in epoch 2; this process has epoch 1. End this process: the messages that it has not"
            " acknowledged are delivered to the other one"
        )
        gone = "One process at a time runs a link: stop that process"
        assert fenced in end or gone in end
        assert f"pid {second.pid} " in end or f"({second.pid}) now" in end
        classic.publish(range(5, 8))
        finished(second, classic, edge, accepting, 8)
        close_channels()
