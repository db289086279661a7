"""A Spark task without Spark."""

import pytest

from ackq.spark import task


@pytest.fixture
def runs_as(monkeypatch):
    """Makes a `Task` the running one."""
    return lambda now: monkeypatch.setattr(task, "current", lambda: now)
