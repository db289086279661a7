"""Types of options with units, and the confirmation prompt before something is lost."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from typing import Final

import click

from ackq import limits, units
from ackq.cli.failure import ExitStatus, Failure
from ackq.errors import InvalidArgumentError


class _Measure(click.ParamType, ABC):  # type: ignore[type-arg] # click 8.1 has none
    """A number with a unit; a usage error names the option and has examples."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number in the base unit."""
        if isinstance(value, int):
            return value  # a default
        try:
            return self._read(str(value), _name(param))
        except InvalidArgumentError as error:
            raise click.UsageError(error.message, ctx) from error

    @abstractmethod
    def _read(self, text: str, option: str) -> int:
        """The number of a text; raises InvalidArgumentError."""


class Duration(_Measure):
    """A duration such as `30s` or `5m`; its value is in milliseconds.

    Args:
        least_ms: The shortest duration that is valid.
    """

    name = "duration"

    def __init__(self, *, least_ms: int = 0) -> None:
        self._least_ms = least_ms

    def _read(self, text: str, option: str) -> int:
        return units.milliseconds(
            text,
            option=option,
            least_ms=self._least_ms,
            most_ms=limits.MAX_TTL_MS,
        )


class Instant(_Measure):
    """A time such as `2026-11-24T18:00Z`; its value is in microseconds since the epoch."""

    name = "time"

    def _read(self, text: str, option: str) -> int:
        return units.instant_us(text, option=option)


class Size(_Measure):
    """A size such as `64m`; its value is in bytes."""

    name = "size"

    def _read(self, text: str, option: str) -> int:
        return units.byte_count(text, option=option, least_bytes=0)


class Rate(click.ParamType):  # type: ignore[type-arg] # click 8.1 has none
    """A rate such as `500/s`, or `500`; its value is in messages per second."""

    name = "n/s"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The messages per second; a usage error names the option and has examples."""
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?:/s)?", str(value).strip())
        if found is None or not float(found[1]):
            error = units.refusal(_name(param), str(value), "messages per second, such as 500/s")
            raise click.UsageError(error.message, ctx)
        return float(found[1])


DURATION: Final = Duration()
SIZE: Final = Size()
RATE: Final = Rate()

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool) -> None:
    """Asks for confirmation before something is lost, unless `yes` is set.

    Raises:
        click.UsageError: There is nobody to ask, as standard input is no terminal.
        Failure: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{question} Standard input is not a terminal, so nobody can be asked: give --yes."
        )
    if not click.confirm(question, err=True):
        raise Failure("Nothing was changed.", ExitStatus.FAILED, "declined")


def _name(param: click.Parameter | None) -> str:
    return param.opts[0] if param is not None else "value"
