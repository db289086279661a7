"""Attempt ids distinguish a fence by the process's own opening from another process's."""

import secrets

from ackq.client.connection import attempts
from ackq.client.connection.attempts import Attempts
from ackq.errors import ClosedError, FencedError
from tests.libraries import replace


def fence(attempt):
    return FencedError("A newer stream replaced this one.", attempt=attempt)


def test_an_opening_of_its_own(monkeypatch):
    """P10, C11, L1: a fence by an attempt of its own is known, and no other error.

    Two copies of a machine, which draw the same random bytes, know each other's fences as foreign.
    """
    replace(monkeypatch, attempts, secrets, token_bytes=bytes)
    mine, other = Attempts(), Attempts()
    made = [mine.new() for _ in range(3)]
    assert len(set(made)) == 3
    assert all(mine.fenced(fence(each.hex())) for each in made)
    for error in (fence(other.new().hex()), fence(""), FencedError("old"), ClosedError("x")):
        assert not mine.fenced(error)


def test_the_opening_answered_last_is_shown_after_an_outage():
    """P10: the broker knows the publisher by it, however many openings found no broker since."""
    mine = Attempts()
    made = [mine.new() for _ in range(3)]
    mine.answered()
    assert mine.before() == made
    unheard = [mine.new() for _ in range(2_000)]
    assert mine.before() == [made[-1], *unheard[-1_000:]]
