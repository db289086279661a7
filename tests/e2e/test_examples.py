"""The examples, run as a user runs them: each ends by itself, and prints its counts at the end."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

import ackq_broker
from tests.structure.product import code_lines
from tests.wire.brokers.rabbitmq_server import RabbitMqServer

LastLine = Callable[..., str]

EXAMPLES = Path(__file__).parents[2] / "jobs/examples"
CLIENT = {
    "publish_consume": "confirmed=1000 accepted=1000 left=0",
    "asyncio_client": "published=1000 accepted=1000 left=0",
    "transactions": "committed=9 rolled_back=1 messages=18",
    "dead_letters": "rejected=10 redriven=10 left=0",
}
SPARK = {
    "first_stream": "published=100 read=100 unacked=0",
    "first_sink": "rows=1000 messages=1000",
    "settle": "accepted=7 rejected=2 requeued=1",
}
LINKED = "rabbitmq_to_delta"
# What a program of a user imports from.
PUBLIC = {"ackq.client", "ackq.errors", "ackq.spark", "ackq_broker", "ackq_broker.links"}


@pytest.mark.parametrize("name", CLIENT)
def test_an_example_of_the_client(next_line: LastLine, scratch: Path, name: str):
    """P4, P13, C4, Q6: it does what it says with a broker of its own, and leaves nothing behind."""
    assert next_line(f"examples/{name}.py") == CLIENT[name]
    assert list(scratch.iterdir()) == []


def test_examples_of_the_client_share_a_broker(next_line: LastLine):
    """With `--endpoint` they run again and again on one broker, and never in each other's way."""
    with ackq_broker.embedded() as broker:
        for name, line in (*CLIENT.items(), *CLIENT.items()):
            assert next_line(f"examples/{name}.py", "--endpoint", broker.endpoint) == line


@pytest.mark.spark
@pytest.mark.delta
@pytest.mark.parametrize("name", SPARK)
def test_an_example_with_spark(next_line: LastLine, name: str):
    """K1, K3, K8, S6: it does what it says with a broker of its own."""
    assert next_line(f"examples/{name}.py") == SPARK[name]


@pytest.mark.spark
@pytest.mark.delta
def test_an_example_with_spark_runs_again(next_line: LastLine):
    """K1, S9: with `--endpoint` and a new checkpoint it finds its session, which holds nothing."""
    with ackq_broker.embedded() as broker:
        for _ in range(2):
            line = next_line("examples/first_stream.py", "--endpoint", broker.endpoint)
            assert line == SPARK["first_stream"]


@pytest.mark.spark
@pytest.mark.delta
def test_the_example_with_rabbitmq(next_line: LastLine, rabbitmq: RabbitMqServer, tmp_path: Path):
    """L9, K1: each message is in the table once, and acknowledged; the next run goes on."""
    host, _, port = rabbitmq.endpoint.partition(":")
    parameters = pika.ConnectionParameters(host, int(port))
    with pika.BlockingConnection(parameters) as connection, connection.channel() as channel:
        channel.queue_declare("orders", durable=True)
        for first in (0, 300):
            for number in range(first, first + 300):
                properties = pika.BasicProperties(message_id=str(number), delivery_mode=2)
                channel.basic_publish("", "orders", b"body", properties)
            line = next_line(
                *(f"examples/{LINKED}.py", "--amqp", f"amqp://{rabbitmq.endpoint}"),
                *("--count", 300, "--folder", tmp_path / "orders"),
            )
            assert line == f"rows={first + 300} unacked=0"
        assert channel.queue_declare("orders", passive=True).method.message_count == 0


def test_each_example_is_run():
    """Each program of the folder has a test above."""
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*CLIENT, *SPARK, LINKED}


@pytest.mark.parametrize("name", sorted((*CLIENT, *SPARK, LINKED)))
def test_an_example_is_short_and_of_the_public_api(name: str):
    """An example has 20 to 40 lines of code, and imports public modules only."""
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    assert 20 <= code_lines(text) <= 40
    tree = ast.parse(text)
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in imported if module.startswith("ackq")} <= PUBLIC
    assert (ast.get_docstring(tree) or "").splitlines()[0].endswith(".")
