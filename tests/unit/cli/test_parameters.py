"""Units on the command line, and the confirmation before a loss."""

import click
import pytest
from click.testing import CliRunner

from ackq.cli.parameters import (
    DURATION,
    RATE,
    SIZE,
    Duration,
)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (DURATION, "1m", 60_000),
        (DURATION, "250ms", 250),
        (SIZE, "64m", 64 << 20),
        (SIZE, "0", 0),
        (RATE, "500/s", 500.0),
        (RATE, "0.5", 0.5),
    ],
)
def test_values_have_units(kind, text, expected):
    """A duration needs its unit; a size and a rate do not."""
    assert kind.convert(text, None, None) == expected


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (DURATION, "5", "'--x' is '5'; it takes a time with its unit, for instance 500ms, 30s"),
        (DURATION, "0", "a time with its unit"),
        (DURATION, "200000d", "ms at most"),
        (Duration(least_ms=1), "0ms", "'--x' is '0ms'; it takes a time with its unit"),
        (SIZE, "64q", "'--x' is '64q'; it takes a size in bytes or with its unit"),
        (RATE, "0/s", "'--x' is '0/s'; it takes messages per second, such as 500/s"),
        (RATE, "5/m", "such as 500/s"),
    ],
)
def test_a_wrong_value_names_its_option_and_has_examples(kind, text, said):
    """A wrong value is a usage error."""

    @click.command()
    @click.option("--x", type=kind)
    def command(x):
        """Never reached."""
        raise AssertionError(x)

    result = CliRunner().invoke(command, ["--x", text])
    assert result.exit_code == 2
    assert said in result.stderr
