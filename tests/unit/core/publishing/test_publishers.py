"""Publishers: their owners, copies of a publisher, and forgotten ones (P10)."""

from dataclasses import replace

import pytest

from ackq.errors import FencedError, PermissionDeniedError, PublisherForgottenError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, PUBLISHER, refused

ID = b"i" * 16


@pytest.fixture
def opened(harness):
    """Opens the publisher; returns the next number that the broker knows of it."""
    return lambda **options: harness.do(c.OpenPublisher(ID, **options))


def publish(harness, number, lowest=1):
    command = harness.command(["q"], numbers=[number], lowest=lowest)
    harness.do(replace(command, publisher_id=ID))


def test_another_user_does_not_open_a_publisher(harness, opened):
    """A10, P10: a user who learns its id cannot use it, before a restart and after."""
    opened()  # of an older version, for example: it belongs to who opens it first
    opened(user="alice", resume=True)
    for _ in range(2):
        for user in ("mallory", "bob"):
            refused(PermissionDeniedError, "another user's", opened, user=user, resume=True)
        opened(user="alice", resume=True)
        harness.do(c.ClosePublisherStream(ID))
        harness.restart()


def test_a_copy_of_a_publisher(harness, opened):
    """P10: a client that knows fewer numbers than were accepted under the id is a copy."""
    me = {"attempt": b"1", "attempts_before": (b"0", b"1")}
    opened(next_number=1, **me)
    publish(harness, 1)
    publish(harness, 2)
    for copy in ({"next_number": 2, "resume": True}, {"next_number": 3}, {"next_number": 1}):
        refused(FencedError, "copy", opened, **me, **copy)
    me["resume"] = True
    assert opened(next_number=3, **me) == 3
    publish(harness, 3, lowest=3)
    refused(FencedError, "copy", opened, next_number=9, lowest_unanswered=2, **me)
    assert opened(next_number=9, lowest_unanswered=3, **me) == 4
    assert opened() == 4  # a client that does not name its numbers


def test_a_copy_that_was_opened_meanwhile(harness, opened):
    """P10: a client that does not know the last opening is a copy, though it has the numbers."""
    opened(attempt=b"a1", next_number=1)
    opened(attempt=b"b1", attempts_before=(b"a1",), next_number=1)
    publish(harness, 1)
    harness.restart()
    again = {"next_number": 2, "resume": True}
    refused(FencedError, "copy", opened, attempt=b"a2", attempts_before=(b"a1",), **again)
    assert opened(attempt=b"b3", attempts_before=(b"a1", b"b1", b"b2"), **again) == 2


def test_a_forgotten_publisher_is_refused(harness):
    """P10: the state is deleted seven days after the last stream; a resume is refused then."""
    resume = c.OpenPublisher(PUBLISHER, resume=True)
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(7 * DAY_US - 10)
    harness.do(resume)
    assert harness.decide(c.OpenPublisher(PUBLISHER)).records == ()  # its answer was lost
    harness.restart()
    harness.housekeep_after(7 * DAY_US + 10)
    told = "outcome of its unconfirmed publishes"
    refused(PublisherForgottenError, told, harness.do, resume)
    refused(PublisherForgottenError, told, harness.publish_to, "q", 1)
    refused(PublisherForgottenError, told, views.missing, harness.core.state, PUBLISHER, 1, 1)
