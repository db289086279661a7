"""Commands that manage the users of a broker, in the file that `serve --users` names."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from ackq.text import printable
from ackq_broker.cli.log import refusing
from ackq_broker.security import users, users_editor
from ackq_broker.security.name_pattern import NamePattern

_FILE: Final = click.option(
    "--users",
    "path",
    required=True,
    metavar="FILE",
    envvar="ACKQ_BROKER_USERS",
    type=click.Path(path_type=Path),
    help="Users file, which `user add` creates.  [ACKQ_BROKER_USERS]",
)
_LIMITS: Final = users.UserLimits.__struct_fields__
# The limits that a user without its own does not have.
_UNBOUNDED: Final = ("connections", "staged_bytes")
_DOES: Final = {"read": "consume from", "write": "publish to", "configure": "declare and delete"}


@click.group()
def user() -> None:
    """Add, change, remove and list users; a running broker reloads a changed users file."""


def _with_limits(command: Callable[..., None]) -> Callable[..., None]:
    for name in reversed(_LIMITS):
        text = name.replace("_", " ")
        without = "no limit" if name in _UNBOUNDED else "the user's share of the broker's limits"
        command = click.option(
            f"--max-{name.replace('_', '-')}",
            name,
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help=f"Highest number of {text} at a time; 0: {without}.",
        )(command)
    return command


def _with_permissions(command: Callable[..., None]) -> Callable[..., None]:
    for name, does in _DOES.items():
        command = click.option(
            f"--{name}",
            metavar="REGEX",
            help=f"Regular expression for the names that the user may {does}.",
        )(command)
    return click.option(
        "--role",
        type=click.Choice(users.ROLES),
        help="Role of the user: an observer sees everything that is listed; an operator may also "
        "act on what other users hold.",
    )(command)


@user.command()
@click.argument("name")
@_FILE
@_with_permissions
@_with_limits
@refusing()
def add(*, name: str, path: Path, role: str | None, **given: Any) -> None:
    """Add a user, and print its token, which cannot be shown again.

    A permission is a regular expression (RE2) that must match the whole name of a queue or
    exchange, such as --read 'orders|orders[.].*'. Without a permission nothing matches.
    """
    token = users.new_token()
    patterns = {each: NamePattern(given.pop(each) or "") for each in users.PERMISSIONS}
    added = users.User(
        name,
        (users.hash_of(token),),
        role or "none",
        **patterns,
        limits=users.UserLimits(**given),
    )
    users_editor.add(path, added, lambda: _say(token))


@user.command()
@click.argument("name")
@_FILE
@click.option("--keep-old", is_flag=True, help="Keep older tokens valid, until --end-old.")
@click.option(
    "--end-old",
    is_flag=True,
    help="End all tokens but the newest, the first in the file; make no new one.",
)
@refusing()
def set_token(*, name: str, path: Path, keep_old: bool, end_old: bool) -> None:
    """Give a user a new token, and print it; older tokens are no longer valid.

    To replace a token that programs use: make a new one with --keep-old, give it to the programs,
    and then run the command with --end-old.
    """
    if keep_old and end_old:
        raise click.UsageError(
            "--keep-old makes a new token, and --end-old makes none: give one of them."
        )
    made = "" if end_old else users.new_token()
    new = () if end_old else (users.hash_of(made),)
    kept = None if keep_old else int(end_old)
    said = made or f"user {printable(name)}: only the newest token is valid now"
    users_editor.change(
        path,
        name,
        lambda before: {"tokens": (*new, *before.tokens[:kept])},
        lambda: _say(said),
    )


@user.command()
@click.argument("name")
@_FILE
@_with_permissions
@refusing()
def set_permissions(*, name: str, path: Path, **given: str | None) -> None:
    """Change the role and the permissions of a user; those that are not given stay unchanged.

    An empty permission matches nothing: --write ''
    """
    new = {each: value for each, value in given.items() if value is not None}
    if not new:
        raise click.UsageError("Give what changes: --role, --configure, --write or --read.")
    changes = {name: value if name == "role" else NamePattern(value) for name, value in new.items()}
    _say(_line(users_editor.change(path, name, lambda _: changes)))


@user.command()
@click.argument("name")
@_FILE
@refusing()
def remove(*, name: str, path: Path) -> None:
    """Remove a user; a running broker ends the user's streams within seconds."""
    users_editor.remove(path, name)
    _say(f"user {printable(name)} removed")


@user.command("list")
@_FILE
@refusing()
def list_users(*, path: Path) -> None:
    """List users with their permissions, one user per line."""
    found = users.load(path)
    for each in found.by_name.values():
        _say(_line(each))


def _say(line: str) -> None:
    """Prints a line; raises OSError, which names the output, if it went nowhere.

    A token is said before the file has it: in the file alone it would be of no use to anyone.
    """
    # click prints nothing, in silence, if standard output is closed.
    if vars(sys)["stdout"] is None:
        raise OSError(errno.EBADF, "it is closed", "standard output")
    try:
        click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python writes what is left when it ends, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from error


def _line(found: users.User) -> str:
    """A user with its permissions and limits, without its tokens."""
    permissions = " ".join(f"{p}={getattr(found, p).text!r}" for p in users.PERMISSIONS)
    taken = {name: most for name, most in msgspec.structs.asdict(found.limits).items() if most}
    limits = "".join(f" {name}={most}" for name, most in taken.items())
    return printable(f"{found.name} role={found.role} {permissions}{limits}")
