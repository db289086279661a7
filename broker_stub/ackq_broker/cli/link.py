"""`ackq-broker link`: moves messages between queues of a remote broker and of the edge."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ackq import extras
from ackq.errors import AckqError, InvalidArgumentError
from ackq_broker.cli.log import FORMATS, LEVELS, configure_log, refuse, set_at_eof
from ackq_link.settings import EDGE_KEYS, LINK_KEYS

if TYPE_CHECKING:
    from ackq_link.configuration import Link

Command = Callable[..., None]
_LOUD = ("aiormq",)

_FLAGS: Final = {**LINK_KEYS, **{f"edge-{name}": key for name, key in EDGE_KEYS.items()}}


def _with_flags(command: Command) -> Command:
    for name, key in reversed(_FLAGS.items()):
        form = {"is_flag": True} if key.kind is bool else {"type": key.kind, "metavar": key.form}
        default = f" ({key.default})" if key.default not in (None, "", 0, -1) else ""
        help_text = f"{key.help.removesuffix('.')}{default}."
        command = click.option(f"--{name}", default=None, help=help_text, **form)(command)
    return command


@click.command()
@click.option("--config", metavar="FILE", help="TOML file with any number of links.")
@_with_flags
@click.option("--stop-at-eof", is_flag=True, help="Stop when standard input ends.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lowest level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Format of the log.",
)
def link(
    *, config: str | None, stop_at_eof: bool, log_level: str, log_format: str, **flags: Any
) -> None:
    """Move messages between queues of a remote broker and of an ackq broker, the edge.

    Runs the links of the --config file, or one link that the flags describe, until SIGTERM or
    SIGINT; the --edge flags apply to both. Each link prints its guarantee. On a signal a link stops
    taking messages, waits for outstanding confirms, acknowledges the messages that are settled at
    the local broker (with --ack stored: stored there), and gives the other messages back.
    """
    configure_log(log_level, log_format)
    for library in _LOUD:  # a link reports this library's errors in words
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        links = _links(config, {name.replace("_", "-"): value for name, value in flags.items()})
        for each in links:
            click.echo(each.guarantee)
        asyncio.run(_run(links, stop_at_eof=stop_at_eof))
    except (AckqError, OSError) as error:
        refuse(error)


def _links(config: str | None, flags: dict[str, Any]) -> list[Link]:
    try:
        from ackq_link import configuration  # noqa: PLC0415 - aiormq may be missing
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            extras.missing(error, "The command ackq-broker link", "amqp")
        ) from None
    if config is None:
        return configuration.of_flags(flags)
    given = {name: value for name, value in flags.items() if value is not None}
    edge = {name: given.pop(name) for name in tuple(given) if name.startswith("edge-")}
    if given:
        names = ", ".join(f"--{name}" for name in given)
        raise InvalidArgumentError(
            f"--config and {names} were given: describe the links in the file or by flags, not in "
            "both."
        )
    return configuration.read(
        Path(config), {name.removeprefix("edge-"): value for name, value in edge.items()}
    )


async def _run(links: list[Link], *, stop_at_eof: bool) -> None:
    from ackq_link import runner  # noqa: PLC0415 - its library may be missing, see above

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stop_at_eof:
        set_at_eof(stop)
    await runner.run(links, stop)
