"""Fixtures every suite shares: a real broker process per test, and a folder for what it keeps."""

import os

import pytest

# A JVM that lives for seconds does not get back what its second compiler takes: a job needs 43 s of
# CPU with it, and 25 s without it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


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
