"""The fixtures of the session tests."""

import pytest

from tests.unit.core.harness import Harness, Reader


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A session on a queue of ten messages, opened and not advanced yet."""
    harness.declare_filled("q", 10)
    return harness.open("q")
