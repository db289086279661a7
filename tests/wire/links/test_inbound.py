"""Inbound links with a real RabbitMQ, as processes that are killed, cut, paused and refused."""

import json
from collections import Counter
from functools import partial

import pytest

import ackq_broker
from ackq.client import Admin, Channel, close_channels
from ackq.info import LinkInfo
from tests.eventually import SOON_S, equals
from tests.sizes import sized
from tests.wire.links.accepting import Accepting
from tests.wire.links.conftest import EdgeQueue, eventually, refused, strike, take

PREFETCH = 50


def inbound(links, rabbit, edge, port=None, endpoint=None, **keys):
    return links(
        **{
            "edge": endpoint or edge.endpoint,
            "direction": "in",
            "broker": f"amqp://127.0.0.1:{port or rabbit.port}",
            "broker_queue": rabbit.queue,
            "queue": "q",
            "prefetch": PREFETCH,
            **keys,
        }
    )


def info(edge):
    """The link's information as an operator sees it."""
    with Admin(edge.endpoint) as admin:
        return admin.link("link")


def drained(edge, accepting, count):
    """Accepts all until `count` messages came, the link holds nothing, and the queue is empty."""

    def ready():
        while accepting.step():
            pass
        found = info(edge)
        unfinished = found.held or found.settled or not found.live
        return len(accepting.rows) >= count and not unfinished

    eventually("the drained queue", ready)
    assert edge.total == 0


def finished(link, rabbit, edge, accepting, count, *, in_order=True):
    """Accepts all: each message came once, in order if asked, and RabbitMQ has none left."""
    drained(edge, accepting, count)
    assert link.stop() == 0
    assert rabbit.ready == 0
    assert (accepting.ids if in_order else sorted(accepting.ids)) == list(range(count))


def events(link, name):
    """The events of a name in the link's log."""
    lines = [line for line in link.log.splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["event"] == f"link_{name}"]


# --- from delivery to acknowledgement ---


def test_stored(rabbit, edge, links):
    """L8, L9: ack=stored acknowledges messages once on disk, in order; a stop exits with 0."""
    rabbit.publish(range(300), content_type="text/plain", headers={"a": "b", "n": 5})
    link = inbound(links, rabbit, edge, ack="stored")
    eventually("the messages", lambda: edge.ready, equals(300))
    eventually("the permits", lambda: info(edge).permitted, equals(300))
    assert link.stop() == 0
    assert edge.ids == list(range(300))
    row = edge.messages[0]
    assert row["content_type"] == "text/plain"
    assert dict(row["headers"])["a"] == "b"
    assert dict(row["headers"])["n"] == "5"
    assert rabbit.ready == 0
    assert "ack=stored: exactly once for messages with a message_id" in link.log
    assert events(link, "stopped")[0]["settled"] == 300


def test_settled(rabbit, edge, links, accepting):
    """L9: RabbitMQ keeps messages until they are accepted at the edge and then acknowledged."""
    count = 40
    rabbit.publish(range(count))
    link = inbound(links, rabbit, edge)
    eventually("the messages", lambda: edge.ready, equals(count))
    assert accepting.step(10) == 10
    link.stop()
    eventually("the remote messages", lambda: rabbit.ready, equals(count))
    link.start()
    eventually("the matches", lambda: info(edge).matched_held, equals(count))
    accepting.step(10)  # accepts the previous ten
    eventually("the permits", lambda: info(edge).permitted, equals(10))
    link.stop()
    eventually("the remote messages", lambda: rabbit.ready, equals(count - 10))
    link.start()
    eventually("the matches", lambda: info(edge).matched_held, equals(count + 30))
    finished(link, rabbit, edge, accepting, count)


def test_settled_one_by_one(classic, rabbitmq_dialect, edge, links):
    """L9, L12: messages accepted in any order on a channel are exactly those acknowledged."""
    classic.publish(range(30))
    link = inbound(links, classic, edge)
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


def test_kills(rabbit, edge, links, accepting):
    """L5, L6, L10: repeated kills of the link with ids neither lose nor double a message."""
    count = 600
    rabbit.publish(range(count))
    link = inbound(links, rabbit, edge)
    strike(accepting, (100, 200, 300), link.kill, link.start)
    finished(link, rabbit, edge, accepting, count)


# A few messages of each kind, in turn, so that a frame has all kinds.
HEADERS = [
    None,
    {"b": "text", "a": "text"},
    {"b": 1, "a": 2},
    {"retries": 0, "async": True, "many": 2**40},
    {"table": {"b": 1, "a": [1, {"d": 2, "c": None}]}, "bytes": b"\xff\x00"},
]


def test_a_kill_with_headers_of_all_types(rabbit, edge, links):
    """L3, L6: messages are matched although RabbitMQ reorders headers with a delivery count."""
    each = 8
    for number in range(each * len(HEADERS)):
        headers = HEADERS[number % len(HEADERS)]
        priority = 1 if number % 3 == 0 else None
        rabbit.publish([number], headers=headers, priority=priority)
    count = each * len(HEADERS)
    link = inbound(links, rabbit, edge)
    eventually("the messages", lambda: edge.ready, equals(count))
    for kill in (1, 2):
        link.kill()
        link.start()
        eventually("the matches", lambda: info(edge).matched_held, equals(kill * count))
    assert link.stop() == 0
    assert (sorted(edge.ids), info(edge).id_reused) == (list(range(count)), 0)


@pytest.mark.parametrize("identical", [False, True])
def test_kills_without_ids(rabbit, rabbitmq_dialect, edge, links, identical, accepting):
    """L6, L7: without ids nothing is lost; at most acks in doubt are doubled, and counted."""
    count, kills = 400, 2
    rabbit.publish_bodies(b"same" if identical else b"%d" % n for n in range(count))
    link = inbound(links, rabbit, edge)
    strike(accepting, (count // 6, count // 3), link.kill, link.start)

    def acknowledged():
        while accepting.step():
            pass
        return rabbitmq_dialect.messages(rabbit.queue) == 0

    # The number of rows does not show the end here, as doubles are among them.
    eventually("the acknowledgements", acknowledged)
    drained(edge, accepting, count)
    assert link.stop() == 0
    assert rabbit.ready == 0
    times = Counter(body for _, body in accepting.rows)
    doubled = sum(times.values()) - count
    assert len(times) == (1 if identical else count)
    assert 0 <= doubled <= info(edge).ambiguous <= kills * PREFETCH


@pytest.mark.parametrize("struck", ["cuts there", "cuts here", "kills of the edge"])
def test_faults_of_others(classic, edge, broker, links, relay_to, struck, accepting):
    """L5, L12, L17, L20: resets of connections and kills of the edge lose and double nothing.

    Those to the edge end no remote consumer; what was delivered is resent under its numbers.
    """
    count, ends = 400, {}
    faults = (broker.kill, broker.restart)
    if struck != "kills of the edge":
        there = struck == "cuts there"
        relay = relay_to(f"127.0.0.1:{classic.port}" if there else edge.endpoint)
        ends = {"port": relay.port} if there else {"endpoint": relay.endpoint}
        faults = (relay.cut, relay.heal)
    classic.publish(range(count))
    link = inbound(links, classic, edge, **ends)
    strike(accepting, (100, 200), *faults)
    finished(link, classic, edge, accepting, count)
    if struck == "cuts here":
        assert events(link, "stopped")[0]["cuts"] == 0


def test_rabbitmq_is_killed(rabbit, rabbitmq_dialect, edge, links, hasty, accepting):
    """L10, L17: messages whose acks RabbitMQ lost in a kill are redelivered and matched.

    L8: those of a quorum queue that were on their way may come after newer ones.
    """
    count = 300
    rabbit.publish(range(count))
    link = inbound(links, rabbit, edge, env=hasty)
    take(accepting, count // 3)
    rabbitmq_dialect.crash()
    finished(link, rabbit, edge, accepting, count, in_order=rabbit.kind == "classic")


def test_a_queue_that_is_deleted(classic, edge, links):
    """L17, L18: after the remote queue is deleted held messages stay, and the link goes on."""
    classic.publish(range(10))
    link = inbound(links, classic, edge)
    eventually("the messages", lambda: edge.ready, equals(10))
    classic.delete()
    eventually("cut", lambda: events(link, "cut"))
    classic.declare()
    classic.publish(range(10, 20))
    eventually("the messages", lambda: edge.ready, equals(20))
    assert edge.ids == list(range(20))


# --- holding ---


def test_a_full_edge(classic, broker, links):
    """L20: while the edge's queue is full the link holds at most its window, and goes on later."""
    with Admin(broker.endpoint) as admin:
        admin.declare_queue("q", max_length=30)
        classic.publish(range(200))

        class Edge:
            endpoint = broker.endpoint

        link = inbound(links, classic, Edge)
        eventually("edge refused", lambda: events(link, "edge_refused"))
        eventually("the messages", lambda: admin.queue("q").ready, equals(30))
        assert classic.ready >= 200 - 30 - PREFETCH
        accepting = Accepting(broker.endpoint)
        take(accepting, 200, 10)
    assert accepting.ids == list(range(200))
    assert link.stop() == 0


@pytest.mark.parametrize("action", ["renew", "store"])
def test_held_too_long(rabbit, edge, links, action):
    """L15: deliveries held too long are renewed and matched, or with `store` permitted."""
    rabbit.publish(range(20))
    link = inbound(links, rabbit, edge, max_hold=2, on_max_hold=action)
    eventually("renewed", lambda: events(link, "renewed"))
    eventually("the matches", lambda: info(edge).matched_held >= 20)
    if action == "store":
        eventually("the permits", lambda: info(edge).permitted, equals(20))
    link.stop()
    left = 20 if action == "renew" else 0
    eventually("the remote messages", lambda: rabbit.ready, equals(left))
    assert edge.ids == list(range(20))


def test_held_too_long_is_an_error(classic, edge, links):
    """L15: with `fail` a delivery held too long ends the link, naming the command to look with."""
    classic.publish(range(5))
    link = inbound(links, classic, edge, max_hold=1, on_max_hold="fail")
    assert eventually("its end", lambda: link.ended) == 2
    assert "ackq why" in link.log.splitlines()[-1]
    eventually("the remote messages", lambda: classic.ready, equals(5))


def test_few_lives(queue_of, edge, links, accepting):
    """L16: with a delivery limit of 3, ten kills of the link lose and dead-letter no message."""
    dead, count = queue_of(), 400
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead.queue}
    queue = queue_of("quorum", delivery_limit=3, **letters)
    queue.publish(range(count))
    progress = TakenMore(edge)
    link = inbound(links, queue, edge, delivery_limit=3, dead_letters=True, prefetch=20)
    for kill in range(sized(10, 20)):
        eventually("progress", progress)
        if kill % 4 == 0:
            accepting.step(15)
        link.kill()
        progress = TakenMore(edge)  # before the start, which may take all that has room
        link.start()
    drained(edge, accepting, count)
    assert link.stop() == 0
    assert dead.ready == 0
    assert sorted(accepting.ids) == list(range(count))


class TakenMore:
    """Whether the link has taken more deliveries since this was made, or holds none."""

    def __init__(self, edge):
        self._edge = edge
        self._taken = self._info().taken

    def __call__(self):
        now = self._info()
        return now.taken > self._taken or (now.live and not now.held)

    def _info(self):
        with Admin(self._edge.endpoint) as admin:
            return next(iter(admin.links()), LinkInfo())


def test_pause(classic, edge, links, accepting):
    """L25: a paused link takes no more, goes on to acknowledge, and gives back held deliveries."""
    classic.publish(range(30))
    link = inbound(links, classic, edge)
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
def test_what_is_refused_at_the_start(classic, edge, links, change, remedy):
    """L13, L14, L17, L28: a start that cannot work exits with 2, the remedy, and nothing taken."""
    classic.publish([0])
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("head", max_length=5, overflow="drop-head")
    values = {"port": classic.port, "queue": classic.queue}
    change = {k: v.format(**values) if isinstance(v, str) else v for k, v in change.items()}
    assert remedy.format(**values) in refused(inbound(links, classic, edge, **change), edge)
    eventually("the remote messages", lambda: classic.ready, equals(1))


def test_two_of_one_name(classic, links, low, talkative, tmp_path):
    """L1: a second process of a link is refused while the first is live, and then takes over.

    RabbitMQ frees the first one's deliveries when it misses its heartbeats. When the first
    continues, it finds itself fenced, or, if the edge has cut its connection meanwhile, the second
    in its place, and ends: it stores and acknowledges nothing more. The edge misses a process after
    5 s instead of 15, and the one to be refused asks for 1 s instead of 30.
    """
    with ackq_broker.embedded(tmp_path / "data", env=low(HEARTBEAT_MS=5_000)) as broker:
        edge = EdgeQueue(broker.endpoint)
        classic.publish(range(5))
        first = inbound(links, classic, edge, heartbeat=1, env=talkative)
        eventually("the messages", lambda: edge.ready, equals(5))
        refused = inbound(links, classic, edge, env=low(HEARTBEAT_MS=500))
        assert eventually("its end", lambda: refused.ended) == 2
        assert "link link" in refused.log.splitlines()[-1]
        first.pause()
        before = info(edge).matched_held
        second = inbound(links, classic, edge, heartbeat=1, env=talkative)
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
