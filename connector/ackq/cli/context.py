"""Shared parts of all commands: the broker's endpoint, the output format, a command's end.

The modules of the commands import neither gRPC nor Arrow, so that `ackq --help` and a shell's
completion need 0.1 s: a command takes them from `ackq.client` when it runs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from ackq import client
from ackq.cli import failure
from ackq.cli.output import print_json
from ackq.client.connection.broker import FLAGS, Broker
from ackq.errors import AckqError

if TYPE_CHECKING:
    from ackq.client import Admin

P = ParamSpec("P")
R = TypeVar("R")
_LOCAL: Final = Broker()
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """The broker of a command, and its output format."""

    broker: Broker = _LOCAL
    as_json: bool = False

    def admin(self) -> Admin:
        """A client for the broker's administration."""
        return client.Admin(self.broker)

    def answer(self, value: object, text: str) -> None:
        """Prints the result of a command on stdout: `text` for people, or `value` as JSON."""
        if self.as_json:
            print_json(value)
        else:
            click.echo(text)


class Group(click.Group):
    """A group of commands whose errors, Ctrl-C and closed pipes end it as `failure` defines."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error, Ctrl-C or a closed pipe becomes a `ClickException`."""
        try:
            return super().invoke(ctx)
        except AckqError as error:
            raise failure.failure_of(error) from error
        except BrokenPipeError as error:
            raise failure.PipeClosedError("The output was closed.") from error
        except KeyboardInterrupt as error:
            raise failure.interrupted() from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Runs the command line and ends the program with its exit status."""
        given = [*(sys.argv[1:] if args is None else args)]
        start = functools.partial(
            super().main, given, prog_name, complete_var, standalone_mode=False, **extra
        )
        if not standalone_mode:
            return start()
        # An error of the command line itself comes before `--json` was parsed.
        sys.exit(failure.run(start, as_json="--json" in given))


class LaterCommand(click.Command):
    """A command whose module is imported when it is used, for modules that import much.

    Args:
        name: The command's name.
        place: The command's module, and its name in the module, as `package.module:name`.
        short_help: The command's line in the help, the first sentence of its docstring.
    """

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._module, _, self._attribute = place.partition(":")

    def load(self) -> click.Command:
        """The command itself."""
        found: click.Command = getattr(import_module(self._module), self._attribute)
        return found

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Makes the context of the command itself, so that the context refers to that command."""
        return self.load().make_context(*args, **extra)


def connected(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command the options `--endpoint` and `--json`, and its `Target` as first argument.

    Both may also stand before the command's name.
    """

    @click.option(
        "--endpoint",
        metavar="HOST:PORT",
        help="Address of the broker; overrides `ackq --endpoint`.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print the output as JSON.")
    @click.pass_context
    @functools.wraps(command)
    def run(
        ctx: click.Context, /, *args: object, endpoint: str | None, as_json: bool, **options: object
    ) -> R:
        target: Target = ctx.find_object(Target) or Target()
        broker = replace(target.broker, endpoint=endpoint or target.broker.endpoint)
        return command(Target(broker, as_json or target.as_json), *args, **options)

    return run


def security_options(command: Decorated) -> Decorated:
    """Gives a command the options of TLS and of the token."""
    for setting in reversed(FLAGS):
        form: dict[str, Any] = {"metavar": setting.metavar, "default": ""}
        if not setting.metavar:
            form = {"is_flag": True}
        made = click.option(setting.flag, envvar=setting.variable, help=setting.help, **form)
        command = made(command)
    return command
