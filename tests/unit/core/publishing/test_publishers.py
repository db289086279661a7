"""Publishers: their owners, and copies of a publisher."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackq.errors import FencedError, PermissionDeniedError
from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness

ID = b"i" * 16


def opened(harness: Harness, **options: Any) -> int:
    """Opens the publisher; returns the next number that the broker knows of it."""
    shown: int = harness.do(c.OpenPublisher(ID, **options))
    return shown


def publish(harness: Harness, number: int, lowest: int = 1) -> None:
    command = harness.command(["q"], numbers=[number], lowest=lowest)
    harness.do(replace(command, publisher_id=ID))


def test_another_user_does_not_open_a_publisher(harness: Harness) -> None:
    """A10, P10: a user who learns its id cannot use it, before a restart and after."""
    opened(harness, user="alice")
    for _ in range(2):
        for user in ("mallory", "bob"):
            with pytest.raises(PermissionDeniedError, match="another user's"):
                opened(harness, user=user, resume=True)
        opened(harness, user="alice", resume=True)
        harness.do(c.ClosePublisherStream(ID))
        harness.restart()


def test_a_publisher_that_is_nobodys(harness: Harness) -> None:
    """A10: an unowned publisher, of an older version for example, belongs to its first opener."""
    opened(harness)
    opened(harness, user="alice", resume=True)
    with pytest.raises(PermissionDeniedError):
        opened(harness, user="mallory", resume=True)
    opened(harness, resume=True)  # without users nothing is compared
    assert harness.core._state.publishers[ID].user == "alice"


def test_a_copy_of_a_publisher(harness: Harness) -> None:
    """P10: a client that knows fewer numbers than were accepted under the id is a copy."""
    harness.declare("q")
    me = {"attempt": b"1", "attempts_before": (b"0", b"1")}
    opened(harness, next_number=1, **me)
    publish(harness, 1)
    publish(harness, 2)
    for copy in (
        {"next_number": 2, "resume": True},
        {"next_number": 3},
        {"next_number": 1},
    ):
        with pytest.raises(FencedError, match="copy"):
            opened(harness, **me, **copy)
    assert opened(harness, next_number=3, resume=True, **me) == 3
    publish(harness, 3, lowest=3)
    with pytest.raises(FencedError):
        opened(harness, next_number=9, resume=True, lowest_unanswered=2, **me)
    assert opened(harness, next_number=9, resume=True, lowest_unanswered=3, **me) == 4
    assert opened(harness) == 4  # a client that does not name its numbers


def test_a_copy_that_was_opened_meanwhile(harness: Harness) -> None:
    """P10: a client that does not know the last opening is a copy, though it has the numbers."""
    harness.declare("q")
    opened(harness, attempt=b"a1", next_number=1)
    opened(harness, attempt=b"b1", attempts_before=(b"a1",), next_number=1)
    publish(harness, 1)
    harness.restart()
    with pytest.raises(FencedError, match="copy"):
        opened(harness, attempt=b"a2", attempts_before=(b"a1",), next_number=2, resume=True)
    again = {"attempts_before": (b"a1", b"b1", b"b2"), "next_number": 2, "resume": True}
    assert opened(harness, attempt=b"b3", **again) == 2
