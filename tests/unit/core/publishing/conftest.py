"""The fixtures of the publishing tests."""

import pytest


@pytest.fixture(autouse=True)
def queue(harness):
    """Declares the queue q for every test."""
    harness.declare("q")
