"""O1: option values parsed from text."""

from pathlib import Path

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.cli import options


@pytest.mark.parametrize(
    ("text", "size"), [("1GiB", 1 << 30), ("512MiB", 512 << 20), ("1000000000", 1_000_000_000)]
)
def test_a_size_of_memory(text, size):
    """P14: a size with a unit of powers of 1024, or in bytes."""
    assert options.size(text) == size


@pytest.mark.parametrize("text", ["", "one", "-1GiB", "GiB"])
def test_a_size_that_is_none(text):
    """P14: a malformed size and one below its minimum are refused."""
    with pytest.raises(InvalidArgumentError, match="is not a size, such as 64k, 256m"):
        options.size(text)
    with pytest.raises(InvalidArgumentError, match="is not a size of 2097152 bytes or more"):
        options.size("1MiB", least=2 << 20)


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
