"""Outbound links with a real RabbitMQ, as processes that are killed and cut."""

import time

import pyarrow as pa

from ackq.client import Admin, Publisher
from ackq.diagnosis.link_state import outbound_sentences
from tests.eventually import equals
from tests.wire.links.conftest import (
    PREFETCH,
    all_out,
    compare,
    events,
    eventually,
    strike_going_out,
)
from tests.wire.links.scenarios import test_all_go_out_in_order, test_kills  # noqa: F401

# The most messages of a window that one batch takes.
SHARE = PREFETCH // 4
POISON = [
    {"amqp-properties": '{"priority":"3"}'},
    {"amqp-properties": '{"priority":3000}'},
    {"amqp-properties": '{"expiration":"60s"}'},
    {"CC": "a text"},
]


def test_messages_that_amqp_cannot_carry(rabbit, edge, outbound, talkative):
    """L22: messages that AMQP cannot carry are refused one by one; the others go out once."""
    headers = [POISON[n // 10] if n % 10 == 5 else {"a": "b"} for n in range(40)]
    edge.send(*((str(n), {"message_id": str(n), "headers": headers[n]}) for n in range(40)))
    began = time.monotonic()
    link = outbound(rabbit, env=talkative)
    good = [number for number in range(40) if number % 10 != 5]
    eventually("the remote messages", lambda: rabbit.ready, equals(len(good)))
    (shown,) = reported(
        edge, lambda each: each.unfit >= len(POISON) and each.published >= len(good)
    )
    assert (shown.published, shown.refused, shown.limited_by) == (len(good), 0, "refusals")
    assert "AMQP cannot carry it" in shown.reason
    assert "can never be published" in outbound_sentences(shown)[0]
    assert link.stop() == 0
    assert shown_now(edge) == []
    assert sorted(int(properties.message_id) for properties, _ in rabbit.take()) == good
    assert edge.total_with_delayed == len(POISON)
    delayed = edge.delayed
    # Each waits a minute before it is tried again.
    assert delayed == len(POISON) or time.monotonic() - began >= 60
    assert "AMQP cannot carry it" in link.log
    assert '"link_cut"' not in link.log


def shown_now(edge):
    """The outbound links that operators are shown."""
    with Admin(edge.endpoint) as admin:
        return admin.outbound_links()


def reported(edge, ready):
    """Waits until a report satisfies `ready`; returns the outbound links shown (L26)."""
    return eventually("a report", lambda: shown_now(edge), lambda shown: any(map(ready, shown)))


def test_cuts(classic, edge, outbound, relay_to, talkative):
    """L17, L22: cuts of the connection to RabbitMQ, then to the edge, lose nothing."""
    count = 1_000
    there, here = relay_to(classic.endpoint), relay_to(edge.endpoint)
    edge.publish(range(count))
    ends = {"broker": classic.at(there.endpoint), "edge": here.endpoint}
    link = outbound(classic, **ends, env=talkative)
    strike_going_out(edge, [750], there.cut, there.heal)
    (shown,) = reported(edge, lambda each: each.cuts)
    assert shown.reason
    strike_going_out(edge, [500], here.cut, here.heal)
    all_out(link, edge)
    compare(classic.ids, count, 2)


def test_what_is_sent_again_has_its_id(classic, edge, outbound, relay_to):
    """L23: messages sent again, after lost confirms or a kill, have the same generated ids."""
    there, here = relay_to(classic.endpoint), relay_to(edge.endpoint)
    link = outbound(classic, broker=classic.at(there.endpoint), edge=here.endpoint)
    eventually("connected", lambda: "link_connected" in link.log)
    there.hold("to_client")
    publish_without_ids(edge, range(100))
    eventually("a share", lambda: classic.ready >= SHARE)
    assert edge.total == 100
    there.cut()
    there.release()
    there.heal()
    eventually("the messages", lambda: edge.total, equals(0))
    first = classic.ready
    assert first >= 100 + SHARE
    here.hold("to_broker")
    publish_without_ids(edge, range(100, 200))
    eventually("a share", lambda: classic.ready >= first + SHARE)
    link.kill()
    here.cut()  # drops what is held, which would accept the messages
    here.release()
    here.heal()
    link.start()
    all_out(link, edge)
    assert doubts(link) >= SHARE
    sent = [(properties.message_id, int(body)) for properties, body in classic.take()]
    assert len(sent) >= 200 + 2 * SHARE
    assert {body for _, body in sent} == set(range(200))
    assert len(dict(sent)) == len(set(sent)) == 200


def doubts(link):
    """The number of messages that the link logged as published again."""
    return sum(each["doubts"] for each in events(link, "doubts"))


def publish_without_ids(edge, bodies):
    """Publishes messages as one block, of which the link takes a share of its window at a time."""
    rows = pa.table({"body": [str(each).encode() for each in bodies]})
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        publisher.publish_batch(rows)


def test_a_returned_message_is_not_accepted(classic, edge, outbound, talkative):
    """L22: messages returned by a deleted queue wait at the edge, and go out later.

    Whatever their ids look like: links use the prefix of one of them.
    """
    ids = ["0", "!bytes:0"]
    link = outbound(classic, env=talkative)
    eventually("connected", lambda: "link_connected" in link.log)
    classic.delete()
    edge.publish(ids)
    eventually("refused", lambda: "link_refused" in link.log)
    (shown,) = reported(edge, lambda each: each.refused)
    target = f"{classic.at(classic.endpoint)}, queue {classic.queue}"
    assert (shown.target, shown.queue, shown.limited_by) == (target, "q", "refusals")
    assert shown.reason == "returned: no queue of the remote broker takes it"
    assert edge.total_with_delayed == len(ids)
    classic.declare()
    eventually("the messages", lambda: edge.total_with_delayed, equals(0))
    assert sorted(ids) == sorted(properties.message_id for properties, _ in classic.take())
