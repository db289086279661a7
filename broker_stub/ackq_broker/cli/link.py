"""`ackq-broker link`: moves messages between another broker's queues and the edge's."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ackq import extras
from ackq.errors import AckqError, InvalidArgumentError
from ackq_broker.cli.log import FORMATS, LEVELS, configure_log, refuse, set_at_eof

if TYPE_CHECKING:
    from ackq_link.configuration import Link

Command = Callable[..., None]
_LOUD = ("aiormq",)

_FLAGS: tuple[tuple[str, type, str | None, str], ...] = (
    ("name", str, "NAME", "The link's name."),
    ("direction", str, "in|out", "in: to the edge; out: to the other broker."),
    ("broker", str, "URL", "amqp://[USER@]HOST[:PORT][/VHOST], or amqps:// for TLS."),
    ("protocol", str, "NAME", "amqp091 (RabbitMQ), or amqp1 (Artemis, Qpid)."),
    ("broker-queue", str, "QUEUE", "The other broker's queue."),
    ("queue", str, "QUEUE", "The edge's queue."),
    ("exchange", str, "NAME", "Out: publish to this exchange instead."),
    ("routing-key", str, "KEY", "Out: with this routing key, instead of each message's."),
    ("ack", str, "settled|stored", "In: acknowledge there what is settled, or stored, here."),
    ("origin-key", str, "RULE", "In: auto, message_id, header:NAME, fingerprint or none (auto)."),
    ("on-ambiguous", str, "store|drop", "In: what came with an ack in doubt (store)."),
    ("on-reject", str, "here|there|discard", "In: where what is rejected here goes (here)."),
    ("max-hold", int, "SECONDS", "In: a delivery is held no longer."),
    ("on-max-hold", str, "ACTION", "In: renew, store or fail."),
    ("accept-limit", bool, None, "In: run though the other queue drops at a limit."),
    ("management", str, "URL", "In: http://HOST:15672, to learn the other queue's limits."),
    ("delivery-limit", int, "COUNT", "In: the other queue's, instead; 0: none."),
    ("consumer-timeout", int, "SECONDS", "In: the other broker's, instead; 0: none."),
    ("dead-letters", bool, None, "In: the other queue has a dead-letter exchange."),
    ("user", str, "NAME", "The user there, instead of the URL's."),
    ("password-file", str, "FILE", "Its password; or in the environment, ACKQ_LINK_PASSWORD."),
    ("prefetch", int, "MESSAGES", "Most messages under way (5000)."),
    ("window-bytes", int, "BYTES", "In: most bytes under way (67108864)."),
    ("heartbeat", int, "SECONDS", "Between heartbeats (10)."),
    ("ca", str, "FILE", "PEM file to trust, for amqps."),
    ("cert", str, "FILE", "Client's PEM file, for amqps; without a user: who the link is."),
    ("key", str, "FILE", "Its key's PEM file."),
    ("edge-endpoint", str, "HOST:PORT", "The ackq broker."),
    ("edge-ca", str, "FILE", "PEM file to trust there; turns TLS on."),
    ("edge-cert", str, "FILE", "Client's PEM file."),
    ("edge-key", str, "FILE", "Its key's PEM file."),
    ("edge-token-file", str, "FILE", "Its token; or in the environment, ACKQ_TOKEN."),
)


def _with_flags(command: Command) -> Command:
    for name, kind, metavar, text in reversed(_FLAGS):
        form: dict[str, Any] = {"type": kind, "metavar": metavar}
        if kind is bool:
            form = {"is_flag": True}
        command = click.option(f"--{name}", default=None, help=text, **form)(command)
    return command


@click.command()
@click.option("--config", metavar="FILE", help="TOML file with any number of links.")
@_with_flags
@click.option("--stop-at-eof", is_flag=True, help="Stop when standard input ends.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def link(
    *, config: str | None, stop_at_eof: bool, log_level: str, log_format: str, **flags: Any
) -> None:
    """Move messages between another broker's queues and this one's, until SIGTERM or SIGINT.

    The links of --config, or one that the flags describe; flags of the edge go with both. Each
    prints what it guarantees. At a
    signal they take nothing more, wait for the confirms under way, and acknowledge what is proven
    stored.
    """
    configure_log(log_level, log_format)
    for library in _LOUD:  # what it says of its errors, a link says in words
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
            f"--config and {names} were given; links are described in one or the other."
        )
    return configuration.read(
        Path(config), {name.removeprefix("edge-"): value for name, value in edge.items()}
    )


async def _run(links: list[Link], *, stop_at_eof: bool) -> None:
    from ackq_link import runner  # noqa: PLC0415 - with its library, see above

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stop_at_eof:
        set_at_eof(stop)
    await runner.run(links, stop)
