"""The lines of the audit log."""

import json

import pytest

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq.v1 import admin_pb2
from ackq_broker.security.audit import Audit

PEER = "ipv4:10.0.0.1:4711"


@pytest.fixture
def lines(caplog):
    """Returns the written audit lines as objects."""
    return lambda: [json.loads(record.getMessage()) for record in caplog.records]


def test_an_act(lines):
    """A8: an act's audit line has its request and result; a name cannot end the line."""
    audit = Audit()
    request = admin_pb2.DeclareQueueRequest(queue="a\nb" + "x" * 300)
    request.properties.durable = True
    audit.act("ops", PEER, "ackq.v1.AdminService.DeclareQueue", request, "done")
    audit.act("ops", PEER, "ackq.v1.AdminService.DeclareQueue", request, "queue_not_found")
    first, second = lines()
    assert first == {
        "event": "act",
        "call": "AdminService.DeclareQueue",
        "user": "ops",
        "peer": PEER,
        "request": {"queue": "a\nb" + "x" * 253, "properties": {"durable": True}},
        "result": "done",
    }
    assert second["result"] == "queue_not_found"


def test_refusals_are_a_line_a_second(lines):
    """A8: refusals of a user or address are one audit line a second; the next counts the rest."""
    now = 0.0
    audit = Audit(lambda: now)
    denied = PermissionDeniedError("x", permission="read on queue 'q'")
    for _ in range(3):
        audit.refused("app", PEER, "ackq.v1.AdminService.Browse", denied)
        audit.refused("", PEER, "ackq.v1.AdminService.Browse", UnauthenticatedError("x"))
    audit.refused(
        "", "ipv4:10.0.0.1:4712", "ackq.v1.AdminService.Browse", UnauthenticatedError("x")
    )
    now = 1.0
    audit.refused("app", PEER, "ackq.v1.AdminService.Browse", denied)
    found = [(each["user"], each["reason"], each.get("left_out", 0)) for each in lines()]
    assert found == [
        ("app", "read on queue 'q'", 0),
        ("", "unauthenticated", 0),
        ("app", "read on queue 'q'", 2),
    ]
