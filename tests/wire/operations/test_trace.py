"""`ackq-broker trace`: the story of a message from the journal of a real broker (Q9)."""

import json

from ackq.client import Admin, Channel, Publisher
from tests.wire.operations.processes import run

SOON_S = 30


def test_a_story_beside_a_broker_and_after_its_end(broker):
    """Q9, Q7: the same story beside a running broker, after kill -9, and after a clean end."""
    admin = Admin(broker.endpoint)
    admin.declare_queue("dead")
    admin.declare_queue("q", dead_letter_queue="dead")
    with Publisher(broker.endpoint, label="shop:1") as publisher:
        publisher.publish(b"x", routing_key="q", message_id="m").result(timeout=SOON_S)
    with Channel(broker.endpoint) as channel:
        consumer = channel.consume("q", mode="client", outcomes=["rejected"])
        consumer.receive(timeout_s=SOON_S).reject("no id").result(timeout=SOON_S)
    admin.redrive("dead")
    words = ["published", "delivered", "rejected", "dead-lettered", "left", "redriven", "ready"]
    assert told(broker, "m") == words
    status, text, _ = run("trace", "--data", broker.data_dir, "m")
    assert status == 0
    assert "published by shop:1 to queue 'q' at position 1" in text
    assert "cause rejected, reason 'no id'" in text
    assert "The journal has all records from the first one on." in text
    broker.kill()
    assert told(broker, "m") == words
    broker.restart()
    broker.stop()
    assert told(broker, "m") == words
    _, text, _ = run("trace", "--data", broker.data_dir, "never\x1b[2J")
    assert "No message with the id 'never\\x1b[2J'" in text


def test_a_directory_that_is_none(tmp_path):
    """Q9: one line, and status 2."""
    status, _, error = run("trace", "--data", tmp_path, "m")
    assert (status, error.count("\n")) == (2, 1)
    assert "holds no journal" in error


def told(broker, message_id):
    status, text, error = run("trace", "--data", broker.data_dir, "--json", message_id)
    assert status == 0, error
    (lines,) = json.loads(text)["messages"]
    return [line["what"] for line in lines]
