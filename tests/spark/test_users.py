"""Queries as users of a broker: admitted with their permissions, refused without (A2, A4)."""

import pytest

from tests.fakes.raw_client import Client
from tests.spark import cluster
from tests.wire.access.conftest import add_master, add_user

pytestmark = pytest.mark.timeout(cluster.TEST_S)


@pytest.fixture
def guarded(tmp_path):
    """A broker with users, queues `in` with ten messages and `out`; a token for both."""
    import ackq_broker

    path = tmp_path / "users.toml"
    token, master = add_user(path, "app", write="out", read="in"), add_master(path)
    env = {"ACKQ_BROKER_USERS": str(path)}
    with (
        ackq_broker.embedded(tmp_path / "data", env=env) as broker,
        Client(broker.endpoint, master) as client,
    ):
        client.declare("in")
        client.declare("out")
        client.publish(*(b"%d" % n for n in range(10)), queue="in")
        yield broker.endpoint, token, client


def copied(spark, endpoint, token, source, target, folder):
    """Runs a query from queue to queue until the source is drained."""
    options = {"endpoint": endpoint, "token": token}
    rows = spark.readStream.format("ackq").options(**options, queue=source).load()
    writer = rows.select("body").writeStream.format("ackq").options(**options, queue=target)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination(cluster.RUN_S)


def test_a_query_with_its_permissions(spark, guarded, tmp_path):
    """A4, K1, K3: a query's tasks fetch by the holder's key; rows come once, and are accepted."""
    endpoint, token, client = guarded
    copied(spark, endpoint, token, "in", "out", tmp_path / "checkpoint")
    assert sorted(client.browse("out")[0]) == [b"%d" % n for n in range(10)]
    assert (client.queue("in").accepted, client.queue("in").unacked) == (10, 0)


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [("out", "out", "read on queue 'out'"), ("in", "in", "write on queue 'in'")],
)
def test_a_query_without_a_permission(spark, guarded, tmp_path, source, target, missing):
    """A2, A3: a query fails with the missing permission, and neither takes nor leaves a message."""
    from pyspark.errors import StreamingQueryException

    endpoint, token, client = guarded
    with pytest.raises(StreamingQueryException, match=missing):
        copied(spark, endpoint, token, source, target, tmp_path / "checkpoint")
    assert (client.queue("in").accepted, client.queue("out").published) == (0, 0)
