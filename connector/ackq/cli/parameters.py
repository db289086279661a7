"""Values of options with units, and the question before something is lost."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ackq import limits, units
from ackq.cli.failure import ExitStatus, Failure
from ackq.errors import InvalidArgumentError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


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
        bare: The unit of a number without one, `ms` or `d`; "" refuses it, as Spark's options do.
        least_ms: The shortest that is taken.
    """

    name = "duration"

    def __init__(self, bare: str = "", *, least_ms: int = 0) -> None:
        self._bare = bare
        self._least_ms = least_ms

    def _read(self, text: str, option: str) -> int:
        return units.milliseconds(
            text,
            option=option,
            bare=self._bare,
            least_ms=self._least_ms,
            most_ms=limits.MAX_TTL_MS,
        )


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

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def duration_option(
    name: str, parameter: str, plain: str = "-ms", *, least_ms: int = 0, **settings: Any
) -> Callable[[Decorated], Decorated]:
    """An option that takes a time with its unit, and a hidden one that has its unit in its name.

    Args:
        name: For instance `--ttl`, for `--ttl 5m`.
        parameter: Of the command; it gets milliseconds.
        plain: What the hidden option has behind that name, for `--ttl-ms 300000`: `-ms` or `-days`.
        least_ms: The shortest that is taken.
        **settings: As of `click.option`.
    """

    def stands_for(ctx: click.Context, _: click.Parameter, value: int | None) -> None:
        if value is not None:
            ctx.default_map = {**(ctx.default_map or {}), parameter: value}

    def add(command: Decorated) -> Decorated:
        unit = Duration({"-ms": "ms", "-days": "d"}[plain], least_ms=least_ms)
        hidden: dict[str, Any] = {"hidden": True, "is_eager": True, "expose_value": False}
        hidden |= {"type": unit, "callback": stands_for}
        command = click.option(f"{name}{plain}", f"plain_{parameter}", **hidden)(command)
        return click.option(name, parameter, type=Duration(least_ms=least_ms), **settings)(command)

    return add


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is lost, unless `yes` says it.

    Raises:
        click.UsageError: There is nobody to ask, as standard input is no terminal.
        Failure: The answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: say --yes to go on.")
    if not click.confirm(question, err=True):
        raise Failure("Nothing was changed.", ExitStatus.FAILED, "declined")


def _name(param: click.Parameter | None) -> str:
    return param.opts[0] if param is not None else "value"
