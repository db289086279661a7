"""Shared by every command: the broker's endpoint, the output format, and errors.

An `AckqError` becomes one line on stderr and status 1; a usage error is click's, status 2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import click

from ackq.client import Admin, Security
from ackq.errors import AckqError
from ackq.limits import DEFAULT_ENDPOINT

P = ParamSpec("P")
R = TypeVar("R")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """The broker of a command, and its output format."""

    endpoint: str = DEFAULT_ENDPOINT
    security: Security | None = None
    as_json: bool = False

    def admin(self) -> Admin:
        """A client for the broker's administration."""
        return Admin(self.endpoint, security=self.security)


class Group(click.Group):
    """A group of commands that prints an `AckqError` as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an `AckqError` becomes a `ClickException`."""
        try:
            return super().invoke(ctx)
        except AckqError as error:
            raise click.ClickException(error.message) from error


def connected(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command the options `--endpoint` and `--json`, and its `Target` as first argument.

    Both may also stand before the command's name.
    """

    @click.option("--endpoint", metavar="HOST:PORT", help="The broker, instead of the group's.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.pass_context
    @functools.wraps(command)
    def run(
        ctx: click.Context, /, *args: object, endpoint: str | None, as_json: bool, **options: object
    ) -> R:
        target: Target = ctx.find_object(Target) or Target()
        target = replace(
            target,
            endpoint=endpoint or target.endpoint,
            as_json=as_json or target.as_json,
        )
        return command(target, *args, **options)

    return run


def security_options(command: Decorated) -> Decorated:
    """Gives a command the TLS options."""
    for option in reversed(
        (
            click.option("--tls", is_flag=True, envvar="ACKQ_TLS", help="Encrypt."),
            click.option("--ca", default="", envvar="ACKQ_CA", help="PEM file to trust."),
            click.option("--cert", default="", envvar="ACKQ_CERT", help="Client's PEM file."),
            click.option("--key", default="", envvar="ACKQ_KEY", help="Its key's PEM file."),
            click.option("--server-name", default="", help="Name in the broker's certificate."),
        )
    ):
        command = option(command)
    return command
