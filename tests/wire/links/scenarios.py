"""What holds for every protocol: tests that the folder of each protocol imports.

They take `remote`, a queue or stream of another broker, which a fixture of the folder makes.
"""

import pytest

from tests.eventually import equals
from tests.wire.links.conftest import (
    all_out,
    compare,
    events,
    eventually,
    info,
    strike,
    strike_going_out,
)


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


def finished(link, remote, edge, accepting, count, *, in_order=True):
    """Accepts all: each message came once, in order if asked, and the remote queue is empty."""
    drained(edge, accepting, count)
    eventually("the remote messages", lambda: remote.left, equals(0))  # accepted, or with the link
    drained(edge, accepting, count)
    assert link.stop() == 0
    assert remote.left == 0
    assert (accepting.ids if in_order else sorted(accepting.ids)) == list(range(count))


@pytest.mark.parametrize("action", ["renew", "store"])
def test_held_too_long(remote, edge, inbound, action):
    """L15: deliveries held too long are renewed and matched, or with `store` permitted."""
    remote.publish(range(20))
    link = inbound(remote, max_hold=2, on_max_hold=action)
    eventually("renewed", lambda: events(link, "renewed"))
    eventually("the matches", lambda: info(edge).matched_held >= 20)
    if action == "store":
        eventually("the permits", lambda: info(edge).permitted, equals(20))
    link.stop()
    left = 20 if action == "renew" else 0
    eventually("the remote messages", lambda: remote.left, equals(left))
    assert edge.ids == list(range(20))


def test_stored(remote, edge, inbound):
    """L8, L9, L12, L30: with ack=stored all come in order and are acknowledged; a stop is 0."""
    remote.publish(range(200), **remote.typed)
    link = inbound(remote, ack="stored")
    eventually("the messages", lambda: edge.ready, equals(200))
    eventually("the permits", lambda: info(edge).permitted, equals(200))
    assert link.stop() == 0
    assert edge.ids == list(range(200))
    row = edge.messages[0]
    headers = dict(row["headers"])
    assert (row["body"], row["content_type"], headers["a"]) == (b"0", "text/plain", "b")
    assert remote.left == 0
    assert "exactly once" in link.log
    assert "secret" not in link.log


def test_settled(remote, edge, inbound, accepting):
    """L9: the remote broker keeps messages until they are accepted at the edge."""
    count = 40
    remote.publish(range(count))
    link = inbound(remote)
    eventually("the messages", lambda: edge.ready, equals(count))
    assert accepting.step(10) == 10
    accepting.step(10)  # accepts the previous ten
    eventually("the permits", lambda: info(edge).permitted, equals(10))
    assert link.stop() == 0
    eventually("the remote messages", lambda: remote.left, equals(count - 10))
    link.start()
    eventually("the matches", lambda: info(edge).matched_held >= count - 10)
    finished(link, remote, edge, accepting, count)


def test_faults(remote, edge, inbound, relay_to, accepting):
    """L5, L6, L8, L10, L11, L17: kills of the link and cuts there neither lose nor double."""
    count = 300
    relay = relay_to(remote.endpoint)
    remote.publish(range(count))
    link = inbound(remote, broker=remote.at(relay.endpoint))
    strike(accepting, (60, 120), link.kill, link.start)
    strike(accepting, (150, 200), relay.cut, relay.heal)
    finished(link, remote, edge, accepting, count, in_order=remote.in_order)


def test_all_go_out_in_order(remote, edge, outbound):
    """L22, L23: messages go out in order, durable, with properties, and are accepted here."""
    edge.publish(range(100))
    edge.send((b"100", {"message_id": "100", "headers": {"a": "b"}, "reply_to": "r"}))
    link = outbound(remote)
    all_out(link, edge)
    before = [(n, b"%d" % n, None, None, True) for n in range(100)]
    assert remote.contents == [*before, (100, b"100", "b", "r", True)]


def test_kills(remote, edge, outbound):
    """L22, L23: kills of the link lose nothing; a broker that knows ids has each message once."""
    count = 500
    edge.publish(range(count))
    link = outbound(remote)
    strike_going_out(edge, (334, 167), link.kill, link.start)
    all_out(link, edge)
    compare(remote.ids, count, 0 if remote.drops_repeated else 2)


def sent_again(remote, edge, outbound, relay_to, fault):
    """Over lost answers, and a fault given the link, a broker that knows ids has each once (L23).

    Messages are sent again, and the broker accepts and drops them.
    """
    part, cuts = 100, 3
    relay = relay_to(remote.endpoint)
    link = outbound(remote, broker=remote.at(relay.endpoint))
    for number in range(cuts):
        eventually("all", lambda: edge.total == 0 and "link_connected" in link.log)
        relay.hold("to_client")
        sent = relay.passed["to_broker"]
        edge.publish(range(number * part, (number + 1) * part))
        eventually("bytes", lambda least=sent + 1_000: relay.passed["to_broker"] > least)
        relay.cut()
        relay.heal()
        relay.release()
    count = (cuts + 3) * part
    edge.publish(range(cuts * part, count))
    eventually("progress", lambda: edge.total < count - cuts * part)
    fault(link)
    all_out(link, edge)
    assert "link_doubts" in link.log
    assert sorted(remote.ids) == list(range(count))
