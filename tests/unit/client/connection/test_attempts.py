"""Attempt ids distinguish a fence by the process's own opening from another process's."""

import secrets

from ackq.client.connection.attempts import Attempts
from ackq.errors import ClosedError, FencedError


def fence(attempt):
    return FencedError("A newer stream replaced this one.", attempt=attempt)


def test_an_opening_of_its_own():
    """P10, C11, L1: a fence by any own attempt, the last or an earlier one, is recognised."""
    attempts = Attempts()
    made = [attempts.new() for _ in range(3)]
    assert len(set(made)) == 3
    assert all(attempts.fenced(fence(each.hex())) for each in made)


def test_what_is_not_its_own():
    """P10: another process's attempt, no attempt, or another error is no own fence."""
    attempts, other = Attempts(), Attempts()
    attempts.new()
    for error in (fence(other.new().hex()), fence(""), FencedError("old"), ClosedError("x")):
        assert not attempts.fenced(error)


def test_copies_of_a_machine_draw_the_same_bytes(monkeypatch):
    """P10: their attempts differ although their random bytes are equal."""
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    one, two = Attempts(), Attempts()
    assert not one.fenced(fence(two.new().hex()))
    assert one.new() != two.new()
