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
