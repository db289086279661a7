"""The users of a broker, in the file that `serve --users` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from ackq.errors import AckqError
from ackq.text import printable
from ackq_broker.cli.log import refuse
from ackq_broker.service.security import users, users_editor
from ackq_broker.service.security.name_pattern import NamePattern

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


@click.group()
def user() -> None:
    """Add, remove and list users. A broker that runs reads the file again by itself."""


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


@user.command()
@click.argument("name")
@_FILE
@click.option(
    "--role",
    type=click.Choice(users.ROLES),
    default="none",
    show_default=True,
    help="An observer sees everything listed; an operator also acts on what others hold.",
)
@click.option("--configure", default="", metavar="REGEX", help="What it may declare and delete.")
@click.option("--write", default="", metavar="REGEX", help="What it may publish to.")
@click.option("--read", default="", metavar="REGEX", help="What it may consume from.")
@_with_limits
def add(
    *, name: str, path: Path, role: str, configure: str, write: str, read: str, **most: Any
) -> None:
    r"""Add a user, and print its token, which nobody can show again.

    A permission is a regular expression (RE2's) that the whole name of a queue or exchange has to
    match; without one nothing matches: --read 'orders|orders\\..*'
    """
    token = users.new_token()
    try:
        users_editor.add(
            path,
            users.User(
                name,
                (users.hash_of(token),),
                role,
                NamePattern(configure),
                NamePattern(write),
                NamePattern(read),
                users.UserLimits(**most),
            ),
        )
    except (AckqError, OSError) as error:
        refuse(error)
    click.echo(token)


@user.command()
@click.argument("name")
@_FILE
def remove(*, name: str, path: Path) -> None:
    """Remove a user; a broker that runs ends its streams within seconds."""
    try:
        users_editor.remove(path, name)
    except (AckqError, OSError) as error:
        refuse(error)
    click.echo(f"user {printable(name)} removed")


@user.command("list")
@_FILE
def list_users(*, path: Path) -> None:
    """List users with their permissions, a line each."""
    try:
        found = users.load(path)
    except (AckqError, OSError) as error:
        refuse(error)
    for each in found.by_name.values():
        permissions = " ".join(f"{p}={getattr(each, p).text!r}" for p in users.PERMISSIONS)
        taken = {name: most for name, most in msgspec.structs.asdict(each.limits).items() if most}
        limits = "".join(f" {name}={most}" for name, most in taken.items())
        click.echo(printable(f"{each.name} role={each.role} {permissions}{limits}"))
