"""Inbound links with real Artemis and Qpid, as processes that are killed and cut."""

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from tests.eventually import equals  # noqa: E402
from tests.wire.links.amqp1.servers import BARE, DEAD_LETTERS, LOSING, TOPIC  # noqa: E402
from tests.wire.links.conftest import eventually, filled, info, refused, take  # noqa: E402
from tests.wire.links.scenarios import (  # noqa: E402, F401 - scenarios of every protocol
    finished,
    test_faults,
    test_held_too_long,
    test_settled,
    test_stored,
)


def test_what_is_given_back_without_ids(peer, edge, inbound, accepting):
    """L6: without ids, messages redelivered unmarked after a stop or kill are matched with held
    ones; none is doubled or counted as ambiguous. L3: Qpid counts their ttl down.
    """
    count = 40
    peer.publish(range(count), ttl=3600)
    link = inbound(peer, origin_key="fingerprint")
    eventually("the messages", lambda: edge.ready, equals(count))
    assert accepting.step(10) == 10
    accepting.step(10)  # accepts the previous ten
    eventually("the permits", lambda: info(edge).permitted, equals(10))
    for again, end in enumerate((link.stop, link.kill), 1):
        end()
        link.start()
        eventually("the matches", lambda x=again: info(edge).matched_held >= x * (count - 10))
    finished(link, peer, edge, accepting, count)
    assert info(edge).ambiguous == 0


def test_a_broker_that_is_killed(artemis, edge, inbound, hasty, accepting):
    """L10, L11, L17: after a kill of the remote broker redelivered messages are matched."""
    count = 300
    artemis.publish(range(count))
    link = inbound(artemis, env=hasty)
    take(accepting, count // 2)
    artemis.server.kill()
    eventually("cut", lambda: "link_cut" in link.log)
    artemis.server.start()
    finished(link, artemis, edge, accepting, count)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"broker": "amqp://nobody@127.0.0.1:{port}"}, "refuses user 'nobody'"),
        ({"broker": "amqp://127.0.0.1:{port}", "password_file": ""}, "user 'ANONYMOUS'"),
        ({"broker": "amqps://link@127.0.0.1:{tls_port}"}, "TLS failed"),
        ({"broker_queue": BARE}, "<dead-letter-address>"),
        ({"broker_queue": TOPIC, "accept_limit": True}, "'topic' is no queue"),
        ({"broker_queue": BARE, "on_reject": "there", "accept_limit": True}, "<dead-letter-addr"),
        ({"broker_queue": LOSING[0], "on_reject": "there"}, "<dead-letter-address>"),
        ({"broker": "amqps://link@127.0.0.1:{tls_port}", "ca": "{ca}", "queue": "none"}, "'none'"),
    ],
)
def test_what_is_refused_at_the_start(artemis, edge, inbound, amqp1_authority, change, remedy):
    """L14, L17, L28: a start that cannot work exits with 2 and the remedy, without password.

    A queue without dead letters is refused, as ten cuts would lose messages; a topic, as each would
    lose what comes meanwhile.
    """
    server = artemis.server
    places = {"port": server.port, "tls_port": server.tls_port, "ca": amqp1_authority.ca}
    assert remedy in refused(inbound(artemis, **filled(change, **places)), edge)


def test_tls_where_nobody_answers_it(artemis, edge, inbound, changed):
    """L17: a port that does not answer TLS is refused after 10 s, here a twentieth of that."""
    env = changed("from ackq_link.amqp1 import connection; connection._HANDSHAKE_S = 0.5")
    link = inbound(artemis, broker=f"amqps://link@{artemis.endpoint}", env=env)
    assert "TLS failed" in refused(link, edge)


def test_what_is_rejected_here_is_rejected_there(artemis, edge, inbound):
    """L10, L28: a message rejected at the edge is rejected remotely, also after a link's kill."""
    before = len(artemis.browse(DEAD_LETTERS))
    artemis.publish(range(6))
    link = inbound(artemis, on_reject="there")
    eventually("the messages", lambda: edge.ready, equals(6))
    edge.settle(6, [1])
    eventually("the dead letters", lambda: len(artemis.browse(DEAD_LETTERS)), equals(before + 1))
    link.pause()  # it no longer reads permits
    edge.settle(5, [4])
    eventually("the rejections", lambda: info(edge).rejected, equals(2))
    link.kill()
    assert len(artemis.browse(DEAD_LETTERS)) == before + 1
    link.start()
    eventually("the dead letters", lambda: len(artemis.browse(DEAD_LETTERS)), equals(before + 2))
    assert link.stop() == 0
    dead = [int(each.id) for each in artemis.browse(DEAD_LETTERS)[before:]]
    assert dead == [1, 4]
    assert edge.ids == [0, 2, 3, 5]
    eventually("the remote messages", lambda: artemis.ids, equals(edge.ids))


def test_qpid_delivers_rejected_messages_again(qpid, edge, inbound):
    """L28: on-reject=there is refused for Qpid, which delivers rejected messages again."""
    link = inbound(qpid, on_reject="there", dead_letters=True)
    assert "again and again. Leave on-reject=here" in refused(link, edge)
