"""The log of a broker process, as a program reads it."""

import json

import pytest

import ackq_broker
from ackq.v1 import consuming_pb2, sessions_pb2
from tests.fakes.raw_client import Client, holder


def lines(broker):
    """The objects of a log in JSON."""
    return [json.loads(line) for line in broker.log_file.read_text().splitlines()]


@pytest.fixture
def broker(tmp_path):
    env = {"ACKQ_BROKER_LOG_FORMAT": "json", "ACKQ_BROKER_LOG_LEVEL": "debug"}
    with ackq_broker.embedded(tmp_path / "data", env=env) as running:
        yield running


def test_the_life_of_a_broker(broker):
    """M3: start, sessions, operators' acts and stop are one log line each, with an event name.

    Publishes and deliveries have none.
    """
    alice, bob = holder("alice"), holder("bob")
    with Client(broker.endpoint) as client:
        client.declare("dead")
        client.declare("q", dead_letter_queue="dead")
        client.publish(b"a", b"b")
        with client.consume() as channel:
            channel.pull()
            channel.settled(channel.settle(1, consuming_pb2.OUTCOME_RELEASED))
        incarnation, _ = client.open(alice)
        client.settle_session(consuming_pb2.OUTCOME_REJECTED, (1, 1), fence=True)
        client.advance(bob, incarnation=incarnation)
        client.sessions.ReleaseSession(sessions_pb2.ReleaseSessionRequest(session="s", fence=True))
    broker.restart()
    found = lines(broker)
    told = [line["event"] for line in found if line["level"] != "debug"]
    once = told[: told.index("stopped") + 1]  # the later start may not be logged yet
    assert once == [
        *("recovered", "serving"),
        *("session_attached", "session_settled", "session_attached", "session_released"),
        *("stopping", "dead_letters", "stopped"),
    ]
    assert [line["event"] for line in found if line["level"] == "debug"] == ["snapshot"]
    attached = [line for line in found if line["event"] == "session_attached"]
    assert [line["application"] for line in attached] == ["alice", "bob"]
    (dead,) = (line for line in found if line["event"] == "dead_letters")
    assert dead["rejected"] == 1
