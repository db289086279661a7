"""The offset in a checkpoint: its text is stable, and foreign offsets are refused."""

import json

import pytest

from ackq.errors import CheckpointMismatchError, OffsetVersionError
from ackq.spark.source.offset import OPENING, Offset


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (OPENING, '{"v": 1}'),
        (
            Offset("orders", "ab12", 10**15),
            '{"v": 1, "session": "orders", "incarnation": "ab12", "tag": 1000000000000000}',
        ),
    ],
)
def test_round_trip(offset, text):
    """An offset always has the same text, as Spark compares offsets as strings."""
    assert json.dumps(offset.to_dict()) == text
    assert Offset.from_dict(json.loads(text)) == offset


def test_newer_version():
    """A checkpoint of a newer ackq is refused, whatever else it holds."""
    with pytest.raises(OffsetVersionError) as caught:
        Offset.from_dict({"v": 2, "lease": "x"})
    assert caught.value.fields == {"version": "2", "known": "1"}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"offset": 3},
        {"v": 0},
        {"v": True},
        {"v": "1"},
        {"v": 1, "tag": 3},
        {"v": 1, "session": "s", "incarnation": "i"},
        {"v": 1, "session": "s", "incarnation": "i", "tag": -1},
        {"v": 1, "session": "s", "incarnation": "i", "tag": "3"},
        {"v": 1, "session": "", "incarnation": "i", "tag": 3},
        {"v": 1, "session": "s", "incarnation": "i", "tag": 3, "more": 1},
        {"v": 1, "session": "s", "incarnation": "i", "tag": True},
        {"v": 1, "session": "s", "incarnation": "i", "tag": (1 << 62) + 1},
        [1],
        None,
    ],
)
def test_foreign_offset(raw):
    """An offset that ackq did not write is refused as that of another source."""
    with pytest.raises(CheckpointMismatchError, match="another source"):
        Offset.from_dict(raw)
