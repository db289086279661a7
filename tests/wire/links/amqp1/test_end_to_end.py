"""From RabbitMQ through the edge to Artemis, with links that are killed (L24)."""

from tests.optional import needs

needs("proton", "amqp1")

from ackq.client import Admin, Publisher  # noqa: E402
from tests.eventually import equals  # noqa: E402
from tests.wire.links.conftest import eventually, take  # noqa: E402

COUNT, STEP = 300, 40


def test_exactly_once_with_ids(classic, artemis, edge, inbound, outbound, accepting):
    """L24: with ids, and both links killed in mid-flow, Artemis has each message once.

    Instead of Spark a reader takes batches, and publishes the rows of each under their ids.
    """
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("results")
    classic.publish(range(COUNT))
    both, passed = [inbound(classic), outbound(artemis, queue="results")], 0
    with Publisher(edge.endpoint, routing_key="results") as publisher:
        for killed in (*both, *both, None):
            take(accepting, passed + STEP if killed else COUNT, 17)
            for message_id, body in accepting.rows[passed:]:
                publisher.publish(body, message_id=message_id)
            passed = len(accepting.rows)
            if killed:
                killed.kill()
                killed.start()
    accepting.step()  # accepts the last batch
    eventually("the end", lambda: (classic.left, edge.total), equals((0, 0)))
    eventually("the results", lambda: len(artemis.ids) >= COUNT)
    assert [link.stop() for link in both] == [0, 0]
    assert sorted(artemis.ids) == list(range(COUNT))
    assert classic.left == 0
