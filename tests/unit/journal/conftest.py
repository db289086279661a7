"""The fixtures of the journal's tests."""

import pytest


@pytest.fixture
def data(tmp_path):
    """A data directory that is not there yet."""
    return tmp_path / "data"
