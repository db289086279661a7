"""From RabbitMQ through the edge to Artemis, with links that are killed (L24)."""

from tests.optional import needs

needs("proton", "amqp1")

from ackq.client import Admin, Publisher  # noqa: E402
from tests.wire.links.accepting import Accepting  # noqa: E402
from tests.wire.links.conftest import eventually, take  # noqa: E402
from tests.wire.links.test_inbound import inbound  # noqa: E402

COUNT, STEP = 300, 40


def test_exactly_once_with_ids(classic, artemis, edge, links, outbound):
    """L24: with ids, and both links killed in mid-flow, Artemis has each message once.

    Instead of Spark a reader takes batches, and publishes the rows of each under their ids.
    """
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("results")
    classic.publish(range(COUNT))
    both = [inbound(links, classic, edge), outbound(artemis, queue="results")]
    accepting, passed = Accepting(edge.endpoint), 0
    with Publisher(edge.endpoint, routing_key="results") as publisher:
        for killed in (both[0], both[1], both[0], both[1]):
            take(accepting, passed + STEP, 17)
            for message_id, body in accepting.rows[passed:]:
                publisher.publish(body, message_id=message_id)
            passed = len(accepting.rows)
            killed.kill()
            killed.start()
        take(accepting, COUNT, COUNT)
        for message_id, body in accepting.rows[passed:]:
            publisher.publish(body, message_id=message_id)
    accepting.step()  # accepts the last batch
    eventually("the results", lambda: not _left(edge.endpoint, "results"))
    eventually("the end", lambda: classic.ready == 0 and not _left(edge.endpoint, "q"))
    assert [link.stop() for link in both] == [0, 0]
    assert sorted(artemis.ids) == list(range(COUNT))
    assert classic.ready == 0


def _left(endpoint, queue):
    with Admin(endpoint) as admin:
        found = admin.queue(queue)
    return found.ready + found.unacked
