"""A fake Spark task."""

import pytest

from ackq.spark import task


@pytest.fixture
def runs_as(monkeypatch):
    """Makes the given `Task` the current one."""
    return lambda now: monkeypatch.setattr(task, "current", lambda: now)
