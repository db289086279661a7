"""The fixtures of the session tests."""

import pytest


@pytest.fixture
def reader(harness):
    """A session on a queue of ten messages, opened and not advanced yet."""
    harness.declare_filled("q", 10)
    return harness.open("q")
