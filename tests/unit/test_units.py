"""Durations and sizes: accepted forms, their values, and error texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq import units
from ackq.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("5min", 300_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        (" 30 S ", 30_000),
        ("0s", 0),
        ("7", 7),
    ],
)
def test_durations(text, expected):
    """The letter m means minutes; a number without a unit takes the option's unit."""
    assert units.milliseconds(text, option="--timeout", bare="ms") == expected


def test_a_number_alone_is_refused_where_it_is_ambiguous():
    """The error names the option and gives examples."""
    with pytest.raises(InvalidArgumentError) as caught:
        units.milliseconds("30", option="maxTriggerDelay")
    assert str(caught.value) == (
        "Option 'maxTriggerDelay' is '30'; it takes a time with its unit, for instance"
        " 500ms, 30s, 5m (minutes), 2h or 1d."
    )
    assert caught.value.fields == {"option": "maxTriggerDelay", "value": "30"}


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1 fortnight", "1e3s", "1.5ms", "0.0001s", "1,5s", "1M5s", "٣s"]
)
def test_what_is_no_duration(text):
    """Malformed durations and fractions of a millisecond are refused."""
    with pytest.raises(InvalidArgumentError, match="30s"):
        units.milliseconds(text, option="o", bare="ms")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("100b", 100),
        ("64k", 65_536),
        ("64m", 64 << 20),
        ("64MB", 64 << 20),
        ("64Mi", 64 << 20),
        ("64 MiB", 64 << 20),
        ("1.5g", 3 << 29),
        ("1t", 1 << 40),
    ],
)
def test_sizes(text, expected):
    """The letter m means MiB in any spelling: units are powers of 1024."""
    assert units.byte_count(text, option="--max-bytes") == expected


@pytest.mark.parametrize("text", ["", "m", "-1", "64ib", "64 mm", "1.5", "0.3k", "much", "0"])
def test_what_is_no_size(text):
    """The error names the option and gives examples."""
    with pytest.raises(InvalidArgumentError) as caught:
        units.byte_count(text, option="--max-bytes")
    assert str(caught.value) == (
        f"Option '--max-bytes' is '{text}'; it takes a size in bytes or with its unit, for instance"
        " 64k, 256m (MiB), 1g or 512MiB."
    )


def test_the_range_is_said():
    """Both bounds are allowed values."""
    times = {"option": "o", "least_ms": 10, "most_ms": 10}
    sizes = {"option": "o", "least_bytes": 1024, "most_bytes": 2048}
    assert units.milliseconds("10ms", **times) == 10
    assert [units.byte_count(text, **sizes) for text in ("1k", "2k")] == [1024, 2048]
    for text in ("9ms", "11ms", "1h"):
        with pytest.raises(InvalidArgumentError, match="; 10 ms at least; 10 ms at most"):
            units.milliseconds(text, **times)
    for text in ("1023", "2049", "999999999999999t"):
        with pytest.raises(InvalidArgumentError, match="; 1024 bytes at least; 2048 bytes at most"):
            units.byte_count(text, **sizes)


@given(st.integers(0, units.MOST))
def test_every_number_is_itself(number):
    """Integers are parsed exactly, also where a float would round."""
    if number < 10**15:
        assert units.byte_count(f"{number}b", option="o", least_bytes=0) == number
        assert units.milliseconds(f"{number}ms", option="o") == number
