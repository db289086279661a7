"""The offset in a checkpoint: its text is stable, and foreign offsets are refused."""

import json

import pytest

from ackq.errors import CheckpointMismatchError, OffsetVersionError
from ackq.spark.source.offset import Offset, Offsets

ORDERS = Offset("orders", "ab12", 10**15)
BOTH = {"b:1": ORDERS, "a:1": ORDERS}
PLACE = '"session": "orders", "incarnation": "ab12", "tag": 1000000000000000}'


@pytest.mark.parametrize(
    ("places", "endpoints", "text"),
    [
        ({}, ["a:1"], '{"v": 1}'),
        ({}, ["a:1", "b:1"], '{"v": 1}'),
        ({"a:1": ORDERS}, ["a:1"], '{"v": 1, ' + PLACE),
        (BOTH, ["b:1", "a:1"], f'{{"v": 2, "edges": {{"a:1": {{{PLACE}, "b:1": {{{PLACE}}}}}'),
        ({"b:1": ORDERS}, ["a:1", "b:1"], f'{{"v": 2, "edges": {{"b:1": {{{PLACE}}}}}'),
    ],
)
def test_round_trip(places, endpoints, text):
    """S12: an offset always has the same text, as Spark compares offsets as strings."""
    offsets = Offsets(places)
    assert json.dumps(offsets.to_dict(endpoints)) == text
    assert Offsets.from_dict(json.loads(text), endpoints) == offsets


def test_a_place_without_endpoint_is_that_of_the_first():
    """S12: a checkpoint of one broker goes on with several."""
    raw = {"v": 1, "session": "orders", "incarnation": "ab12", "tag": 10**15}
    assert Offsets.from_dict(raw, ["b:1", "a:1"]) == Offsets({"b:1": ORDERS})


def test_newer_version():
    """A checkpoint of a newer ackq is refused, whatever else it holds."""
    with pytest.raises(OffsetVersionError) as caught:
        Offsets.from_dict({"v": 3, "lease": "x"}, ["a:1"])
    assert caught.value.fields == {"version": "3", "known": "2"}


PART = {"session": "s", "incarnation": "i"}


@pytest.mark.parametrize(
    "raw",
    [
        {"offset": 3},
        {"v": True},
        {"v": 1, "tag": 3},
        {"v": 1, **PART},
        {"v": 1, **PART, "tag": -1},
        {"v": 1, "session": "", "incarnation": "i", "tag": 3},
        {"v": 1, **PART, "tag": 3, "more": 1},
        {"v": 1, **PART, "tag": (1 << 62) + 1},
        {"v": 2, "edges": {"a:1": PART}},
        {"v": 2, "edges": {"a:1": {**PART, "tag": 1}}, "more": 1},
        None,
    ],
)
def test_foreign_offset(raw):
    """An offset that ackq did not write is refused as that of another source."""
    with pytest.raises(CheckpointMismatchError, match="another source"):
        Offsets.from_dict(raw, ["a:1"])
