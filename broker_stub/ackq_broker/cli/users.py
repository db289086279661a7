"""Commands that manage the users of a broker, in the file that `serve --users` names."""

from __future__ import annotations

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
    help="The users file; made if it is not there.  [ACKQ_BROKER_USERS]",
)
_LIMITS: Final = users.UserLimits.__struct_fields__
_DOES: Final = {"read": "consume from", "write": "publish to", "configure": "declare and delete"}


@click.group()
def user() -> None:
    """Add, change, remove and list users. A broker that runs reads the file again by itself."""


def _with_limits(command: Callable[..., None]) -> Callable[..., None]:
    for name in reversed(_LIMITS):
        text = name.replace("_", " ")
        command = click.option(
            f"--max-{name.replace('_', '-')}",
            name,
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help=f"The most {text} at a time; 0: as the broker's.",
        )(command)
    return command


def _with_permissions(command: Callable[..., None]) -> Callable[..., None]:
    for name, does in _DOES.items():
        command = click.option(f"--{name}", metavar="REGEX", help=f"What it may {does}.")(command)
    return click.option(
        "--role",
        type=click.Choice(users.ROLES),
        help="An observer sees everything listed; an operator also acts on what others hold.",
    )(command)


@user.command()
@click.argument("name")
@_FILE
@_with_permissions
@_with_limits
@refusing()
def add(*, name: str, path: Path, role: str | None, **given: Any) -> None:
    r"""Add a user, and print its token, which nobody can show again.

    A permission is a regular expression (RE2's) that the whole name of a queue or exchange has to
    match; without one nothing matches: --read 'orders|orders\\..*'
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
    users_editor.add(path, added)
    click.echo(token)


@user.command()
@click.argument("name")
@_FILE
@click.option("--keep-old", is_flag=True, help="Older tokens count as well, until --end-old.")
@click.option(
    "--end-old",
    is_flag=True,
    help="Make no token; the newest, the first in the file, counts alone.",
)
@refusing()
def set_token(*, name: str, path: Path, keep_old: bool, end_old: bool) -> None:
    """Give a user a new token, and print it; older ones do not count any more.

    To change it while programs run: --keep-old, give them the new one, --end-old.
    """
    if keep_old and end_old:
        raise click.UsageError("--keep-old makes a new token, and --end-old makes none.")
    made = "" if end_old else users.new_token()
    new = () if end_old else (users.hash_of(made),)
    kept = None if keep_old else int(end_old)
    users_editor.change(path, name, lambda before: {"tokens": (*new, *before.tokens[:kept])})
    click.echo(made or f"user {printable(name)}: the newest token alone counts")


@user.command()
@click.argument("name")
@_FILE
@_with_permissions
@refusing()
def set_permissions(*, name: str, path: Path, **given: str | None) -> None:
    """Change the role and the permissions of a user; what is not given stays.

    An empty permission matches nothing: --write ''
    """
    new = {each: value for each, value in given.items() if value is not None}
    if not new:
        raise click.UsageError("Say what changes: --role, --configure, --write or --read.")
    changes = {name: value if name == "role" else NamePattern(value) for name, value in new.items()}
    click.echo(_line(users_editor.change(path, name, lambda _: changes)))


@user.command()
@click.argument("name")
@_FILE
@refusing()
def remove(*, name: str, path: Path) -> None:
    """Remove a user; a broker that runs ends its streams within seconds."""
    users_editor.remove(path, name)
    click.echo(f"user {printable(name)} removed")


@user.command("list")
@_FILE
@refusing()
def list_users(*, path: Path) -> None:
    """List users with their permissions, a line each."""
    found = users.load(path)
    for each in found.by_name.values():
        click.echo(_line(each))


def _line(found: users.User) -> str:
    """A user with its permissions and limits, without its tokens."""
    permissions = " ".join(f"{p}={getattr(found, p).text!r}" for p in users.PERMISSIONS)
    taken = {name: most for name, most in msgspec.structs.asdict(found.limits).items() if most}
    limits = "".join(f" {name}={most}" for name, most in taken.items())
    return printable(f"{found.name} role={found.role} {permissions}{limits}")
