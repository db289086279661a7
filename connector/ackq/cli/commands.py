"""The `ackq` command group: its global options, `ackq info`, and the subcommands."""

from __future__ import annotations

from typing import Any

import click

from ackq import __version__
from ackq.cli.broker import broker
from ackq.cli.consume import consume
from ackq.cli.context import Group, LaterCommand, Target, connected, security_options
from ackq.cli.definitions import definitions
from ackq.cli.exchanges import bind, exchange, unbind
from ackq.cli.links import link
from ackq.cli.output import as_dict, print_fields, print_json
from ackq.cli.publish import publish
from ackq.cli.queues import queue
from ackq.cli.sessions import session
from ackq.cli.top import top
from ackq.cli.writers import batch, writer
from ackq.client.connection.broker import Broker
from ackq.client.connection.security import Security
from ackq.limits import DEFAULT_ENDPOINT


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--endpoint",
    metavar="HOST:PORT",
    envvar="ACKQ_ENDPOINT",
    default=DEFAULT_ENDPOINT,
    show_default=True,
    show_envvar=True,
    help="Address of the broker.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the output as JSON.")
@security_options
@click.version_option(__version__, prog_name="ackq")
@click.pass_context
def ackq(
    ctx: click.Context,
    /,
    *,
    endpoint: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Administer an ackq broker, publish to it and consume from it."""
    ctx.obj = Target(Broker(endpoint, Security.of_settings(given)), as_json)


@ackq.command()
@connected
def info(target: Target) -> None:
    """Show the broker's version, history and journal position."""
    with target.admin() as admin:
        fields = as_dict(admin.info())
    if target.as_json:
        print_json(fields)
    else:
        print_fields(fields)


# `--help` and a shell's completion import all of these commands: 0.1 s (tests/structure).
for each in (
    *(queue, exchange, bind, unbind, publish, consume, session, link, batch, writer, broker),
    *(top, definitions),
):
    ackq.add_command(each)
for name, first_sentence in {
    "why": "Say why the queue QUEUE stands still: who holds what, since when, and what to do.",
    "trace": "Show where message MESSAGE_ID is: its queue, its holder, why it is a dead letter.",
    "doctor": "Check Java, Python, Spark, Arrow and the connection to the broker; print remedies.",
}.items():
    ackq.add_command(LaterCommand(name, f"ackq.cli.diagnosis.{name}:{name}", first_sentence))
