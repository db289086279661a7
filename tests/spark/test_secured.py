"""Queries with a broker that has TLS and users: admission, rotation, and reasons of refusals."""

import pytest

from ackq.client import Admin, Publisher, close_channels
from tests.fakes.secured import secured_broker
from tests.spark import cluster
from tests.spark.conftest import Kit

RELAY = """
import sys

from pyspark.sql import SparkSession

endpoint, checkpoint = sys.argv[1:]
broker = {"endpoint": endpoint, "tlsCa": "ca.pem", "tokenFile": "all.token"}
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("ackq").options(**broker, queue="in", minPartitions=2).load()
rows.select("body").writeStream.format("ackq").options(
    **broker, queue="out", checkpointLocation=checkpoint
).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def secured(tmp_path):
    with secured_broker(tmp_path, token="old") as running:
        with Admin(running.endpoint, security=running.security()) as admin:
            for queue in ("in", "out"):
                admin.declare_queue(queue)
        yield running
        close_channels()


@pytest.fixture
def kit(spark, secured, tmp_path):
    return Kit(spark, secured, Admin(secured.endpoint, security=secured.security()), tmp_path)


@pytest.fixture
def options(secured):
    """The security options of a query."""
    security = secured.security()
    return {"tlsCa": security.ca, "tokenFile": security.token_file}


def publish(secured, *bodies):
    security = secured.security()
    with Publisher(secured.endpoint, security=security, routing_key="in") as publisher:
        for body in bodies:
            publisher.publish(body)


def relay(kit, options, **trigger):
    rows = kit.source("in", "body binary", **options)
    writer = kit.sink(rows, "checkpoint", queue="out", **options)
    return writer.trigger(**trigger) if trigger else writer


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"token": "wr0ng"}, "does not know the token of this client"),
        ({}, "wants a token, and this client has none"),
        ({"tls": "true"}, "from none of the authorities that this client trusts"),
    ],
)
def test_a_query_that_is_refused_fails_at_once(kit, fails, options, wrong, said):
    """A9: a refused query fails at once, not after `retryTimeout`, and names the remedy."""
    given = wrong if "tls" in wrong else {"tlsCa": options["tlsCa"], **wrong}
    text = fails(relay(kit, {"retryTimeout": "1h", **given}))
    assert said in text
    assert "wr0ng" not in text


def test_a_query_goes_on_over_a_rotation(kit, secured, options):
    """A9: a query goes on when its token file is replaced and the broker forgets the old token."""
    publish(secured, b"1")
    with kit.running(relay(kit, options, processingTime="200 milliseconds")) as query:
        kit.wait_for(query, "a message", lambda: kit.depth("out")[0] == 1)
        secured.add("all", token="old", also="new")
        kit.wait_for(query, "the new token", lambda: secured.knows("new"))
        secured.add("all", token="new")
        kit.wait_for(query, "the old one's end", lambda: not secured.knows("old"))
        publish(secured, b"2")
        kit.wait_for(query, "two messages", lambda: kit.bodies("out") == [b"1", b"2"])


def test_executors_get_the_files_with_the_program(secured, tmp_path):
    """`--files` puts token and CA where a name without a path finds them, in each executor."""
    publish(secured, *(b"%d" % number for number in range(10)))
    (tmp_path / "relay.py").write_text(RELAY)
    security = secured.security()
    driver = tmp_path / "driver"
    driver.mkdir()
    cluster.shell(
        f"cp {security.ca} ca.pem; cp {security.token_file} all.token; spark-submit"
        f" --master 'local-cluster[2,1,1024]' --files ca.pem,all.token"
        f" {tmp_path}/relay.py {secured.endpoint} {tmp_path}/checkpoint",
        driver,
        cluster.environment(),
    )
    with Admin(secured.endpoint, security=security) as admin:
        assert (admin.queue("in").accepted, admin.queue("out").ready) == (10, 10)
