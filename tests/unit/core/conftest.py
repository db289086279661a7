"""The fixtures of the core's tests."""

import pytest

from tests.unit.core.harness import Harness


@pytest.fixture
def harness():
    """A core that has started, with an open publisher."""
    return Harness()
