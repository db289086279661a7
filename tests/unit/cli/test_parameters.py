"""Units on the command line, and the confirmation before a loss."""

import click
import pytest
from click.testing import CliRunner

from ackq.cli import parameters
from ackq.cli.parameters import DURATION, RATE, SIZE


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (DURATION, "1m", 60_000),
        (SIZE, "64m", 64 << 20),
        (RATE, "500/s", 500.0),
    ],
)
def test_values_have_units(kind, text, expected):
    """A duration needs its unit; a size and a rate do not."""
    assert kind.convert(text, None, None) == expected


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (DURATION, "5", "'--x' is '5'; it takes a time with its unit, for instance 500ms, 30s"),
        (DURATION, "200000d", "ms at most"),
        (parameters.Duration(least_ms=1), "0ms", "'--x' is '0ms'; it takes a time with its unit"),
        (SIZE, "64q", "'--x' is '64q'; it takes a size in bytes or with its unit"),
        (RATE, "0/s", "'--x' is '0/s'; it takes messages per second, such as 500/s"),
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


@pytest.mark.parametrize(
    ("terminal", "arguments", "typed", "status", "said"),
    [
        (True, [], "y\n", 0, "Drop 3 messages? [y/N]"),
        (True, [], "n\n", 1, "Nothing was changed."),
        (True, ["--yes"], "", 0, ""),
        (False, ["-y"], "", 0, ""),
        (False, [], "y\n", 2, "not a terminal, so nobody can be asked: give --yes."),
    ],
)
def test_a_loss_is_confirmed(terminal, arguments, typed, status, said, monkeypatch):
    """Only a person at a terminal is asked; otherwise --yes is required."""

    @click.command()
    @parameters.yes_option
    def command(*, yes):
        """Confirms."""
        monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
        parameters.confirm("Drop 3 messages?", yes=yes)
        click.echo("dropped")

    result = CliRunner().invoke(command, arguments, input=typed)
    assert result.exit_code == status
    # With older versions of click the runner's stdout has the typed text, too.
    assert ("dropped" in result.stdout.splitlines()) == (status == 0)
    assert said in result.stderr
