"""Outbound links with real Artemis and Qpid, as processes that are killed and cut."""

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from tests.wire.links.amqp1.servers import EXCHANGE, OPEN_TOPIC, SMALL, TOPIC  # noqa: E402
from tests.wire.links.conftest import all_out, eventually  # noqa: E402
from tests.wire.links.scenarios import (  # noqa: E402, F401 - scenarios of every protocol
    sent_again,
    test_all_go_out_in_order,
    test_kills,
)


def test_artemis_drops_what_comes_again(artemis, edge, outbound, relay_to):
    """L23: over lost answers and a kill of the broker, Artemis has each message once."""

    def kill():
        artemis.server.kill()
        artemis.server.start()

    sent_again(artemis, edge, outbound, relay_to, lambda _: kill())


def test_one_id_for_two_messages(artemis, edge, outbound):
    """L23: two messages with one id and different bodies are two messages, also for Artemis."""
    edge.send(*((body, {"message_id": "5"}) for body in ("one", "two")))
    link = outbound(artemis)
    all_out(link, edge)
    assert [bytes(each.body) for each in artemis.browse()] == [b"one", b"two"]


def test_a_message_of_a_topic(artemis, edge, outbound):
    """L22: what was sent to a topic, and says so, is stored by a queue that it goes out to."""
    noted = {"amqp-properties": '{"annotations": {"x-opt-jms-dest": {"!byte": 1}}}'}
    edge.send(("one", {"message_id": "5", "headers": noted}))
    link = outbound(artemis)
    all_out(link, edge)
    assert artemis.ids == [5]


def test_what_is_refused_waits(artemis_queues, edge, outbound):
    """L22: messages that a full address rejects wait at the edge, and go when there is room."""
    small = artemis_queues(SMALL)
    edge.publish(range(20))
    link = outbound(small)
    eventually("refused", lambda: "link_refused" in link.log)
    taken = []
    eventually("all", lambda: taken.extend(small.take()) or len(taken) == 20)
    assert {int(each.id) for each in taken} == set(range(20))
    assert link.stop() == 0


@pytest.mark.parametrize(
    ("peer", "queue", "remedy"),
    [
        ("artemis", "nowhere", "Create it at that broker"),
        ("artemis", TOPIC, "Create it at that broker (Artemis: as anycast)"),
        ("qpid", "nowhere", "Create it at that broker"),
        ("qpid", EXCHANGE, "'amq.topic' is no queue"),
    ],
    indirect=["peer"],
)
def test_a_wrong_queue(peer, edge, outbound, queue, remedy):
    """L17, L22: a wrong remote queue exits with 2 and a line that names the remedy, as does a topic
    or exchange, which drops what has no queue there.
    """
    edge.publish(range(1))
    link = outbound(peer, broker_queue=queue)
    assert eventually("its end", lambda: link.ended) == 2
    assert remedy in link.log.splitlines()[-1]
    assert edge.total == 1


@pytest.mark.parametrize("queue", ["open.new", OPEN_TOPIC])
def test_artemis_creates_a_queue(artemis_queues, edge, outbound, queue):
    """L22: where Artemis has no queue, and may create one, it keeps what a link publishes."""
    edge.publish(range(3))
    link = outbound(artemis_queues(f"{queue}::{queue}"), broker_queue=queue)
    all_out(link, edge)
    assert artemis_queues(f"{queue}::{queue}").ids == [0, 1, 2]
