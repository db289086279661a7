"""Fixtures every suite shares: a real broker process per test, and a folder for what it keeps."""

import pytest


@pytest.fixture
def broker(tmp_path):
    """A real broker process with its own data directory.

    `broker.kill()` is SIGKILL, `broker.restart()` starts it again.
    """
    from ackq_broker import embedded

    with embedded(data=tmp_path / "data") as running:
        yield running


@pytest.fixture
def admin(broker):
    """An `Admin` on the test's broker."""
    from ackq.client import Admin

    with Admin(broker.endpoint) as client:
        yield client
