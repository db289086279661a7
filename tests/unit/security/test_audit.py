"""The lines of the audit log."""

import json

import pytest

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq_broker.security.audit import Audit

PEER = "ipv4:10.0.0.1:4711"


@pytest.fixture
def lines(caplog):
    """Returns the written audit lines as objects."""
    return lambda: [json.loads(record.getMessage()) for record in caplog.records]


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
