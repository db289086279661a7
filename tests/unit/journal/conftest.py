"""The fixtures of the journal's tests."""

import pytest


@pytest.fixture
def data(tmp_path):
    """A data directory that does not exist yet."""
    return tmp_path / "data"
