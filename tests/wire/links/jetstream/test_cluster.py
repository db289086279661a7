"""Links with a cluster of three NATS servers, whose leader is killed."""

import pytest

from tests.eventually import equals
from tests.wire.links.conftest import eventually, take
from tests.wire.links.jetstream import nats_server
from tests.wire.links.scenarios import finished

pytestmark = pytest.mark.servers


@pytest.fixture
def cluster(tmp_path, nats_authority):
    """Three servers by name."""
    with nats_server.cluster(tmp_path, nats_authority) as servers:
        yield {server.name: server for server in servers}


def leader(server, stream):
    """The name of the server that leads the stream's consumer."""
    found = server.ask(f"CONSUMER.INFO.{stream.name}.link")
    return found.get("cluster", {}).get("leader", "")


def test_the_leader_is_killed(cluster, edge, inbound, outbound, low, accepting):
    """L10, L17, L22, L30: with the leader killed in mid-flow, in and out, each message is once.

    The link out waits for a dead leader's answers for 11 s instead of 30.
    """
    count = 300
    stream = nats_server.Stream(cluster["n0"], {"num_replicas": 3}, ack_wait=5 * 10**9)
    edge.publish(range(count))
    out = outbound(stream, env=low(LINK_ANSWER_S=11))
    eventually("progress", lambda: edge.total < count // 2)
    first = leader(cluster["n0"], stream)
    killed = first if first != "n0" else "n1"
    cluster[killed].kill()
    eventually("all out", lambda: edge.total, equals(0))
    assert out.stop() == 0
    cluster[killed].start()
    link = inbound(stream)
    take(accepting, count // 3)
    second = eventually("a leader", lambda: leader(cluster["n0"], stream))
    killed = second if second != "n0" else "n2"
    cluster[killed].kill()
    finished(link, stream, edge, accepting, count, in_order=False)
