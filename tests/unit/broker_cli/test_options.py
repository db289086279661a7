"""O1: option values parsed from text."""

from pathlib import Path

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.cli import options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 768 << 20),
        ({"segment_size": 16 << 20}, 288 << 20),
        ({"segment_size": 16 << 20, "reserve": 48 << 20}, 48 << 20),
        ({"segment_size": 16 << 20, "reserve": (48 << 20) - 1}, None),
    ],
)
def test_the_disk_reserve(given, expected):
    """P8: the reserve follows the segment size, and is never too small to drain from."""
    said = options.ServeOptions(data=Path("/d"), **given)
    if expected is not None:
        assert options.reserve(said) == expected
        return
    with pytest.raises(InvalidArgumentError, match="Choose a larger --reserve, or a smaller"):
        options.reserve(said)


def test_levels_and_switches():
    """O1: levels and switches are accepted in any case."""
    assert options.level("INFO") == "info"
    assert (options.switch("Yes"), options.switch("0")) == (True, False)
