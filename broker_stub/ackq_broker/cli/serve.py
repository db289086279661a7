"""`ackq-broker serve`: runs the broker until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ackq import __version__
from ackq.errors import AckqError
from ackq_broker import server
from ackq_broker.cli.log import configure_log, refuse, set_at_eof, set_level
from ackq_broker.cli.options import DEFAULTS, OPTIONS, ServeOptions, reserve
from ackq_broker.cli.settings import CONFIG, settings, variable
from ackq_broker.journal import kill_at
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.security.setup import SecurityOptions

_log = logging.getLogger(__name__)

# How long the event loop waits for the interpreter while a thread prepares frames: at Python's 5 ms
# the waits of several turns add up.
_SWITCH_S: Final = 0.0005

Command = Callable[..., None]


def _with_options(command: Command) -> Command:
    """Adds a flag for each option to a command; an absent flag has no value."""
    for name, option in reversed(OPTIONS.items()):
        default = DEFAULTS[name]
        several = isinstance(default, tuple)
        shown = ", ".join(map(str, default)) if several else default
        command = click.option(
            f"--{name}",
            default=None,
            multiple=several,
            help=f"{option.help}  [{variable(name)}{f'; default: {shown}' if shown else ''}]",
            **({"is_flag": True} if default is False else {"metavar": option.metavar}),
        )(command)
    return command


@click.command()
@_with_options
@click.option(
    "--config",
    metavar="FILE",
    help='TOML file with these options as keys, such as `log-level = "debug"`. A flag overrides '
    f"its environment variable, which overrides the file.  [{CONFIG}]",
)
@click.option(
    "--print-config",
    is_flag=True,
    help="Print the effective settings as a file for --config, and exit.",
)
def serve(*, print_config: bool, **flags: Any) -> None:
    """Serve a data directory until SIGTERM or SIGINT.

    SIGHUP reloads the log level, the users and the TLS files.
    """
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    try:
        found = settings(given, os.environ)
        configure_log(found.options.log_level, found.options.log_format)
        if print_config:
            click.echo("\n".join(found.lines()))
            return
        for warning in found.warnings:
            _log.warning("%s", warning)
        asyncio.run(_serve(found.options, given))
    except (AckqError, OSError) as error:
        refuse(error)


async def _serve(options: ServeOptions, flags: Mapping[str, object]) -> None:
    """Serves until a signal, or the end of standard input, asks to stop."""
    stop = asyncio.Event()
    reloads: list[server.Reload] = [lambda: _reload_level(flags)]

    def ready(broker: server.Ready) -> None:
        reloads.extend(broker.reloads)
        _ready(options, broker)

    sys.setswitchinterval(_SWITCH_S)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, reloads)
    if options.stop_at_eof:
        set_at_eof(stop)
    failpoint = os.environ.get("ACKQ_FAILPOINT")
    broker = server.Options(
        options.data,
        options.listen,
        sync=not options.no_sync,
        failpoint=kill_at(failpoint) if failpoint else unarmed,
        memory_limit=options.memory_limit or 0,
        http=options.http,
        security=SecurityOptions(
            options.users,
            options.tls_cert,
            options.tls_key,
            options.tls_client_ca,
            insecure=options.insecure,
        ),
        segment_bytes=options.segment_size,
        reserve_bytes=reserve(options),
        backup_dir=options.backup_dir,
    )
    await server.serve(broker, stop, ready)


def _ready(options: ServeOptions, broker: server.Ready) -> None:
    """Prints one line that the broker serves, and writes the port files."""
    if options.port_file is not None:
        _write_whole(options.port_file, f"{broker.port}\n")
    if options.http_port_file is not None and broker.http is not None:
        _write_whole(options.http_port_file, f"{broker.http.port}\n")
    click.echo(
        f"ackq-broker {__version__} listening on {','.join(map(str, broker.listening))}"
        f" data={options.data} sync={'none' if options.no_sync else 'fdatasync'}"
        f" history={broker.history_id} recovered={broker.recovered} records in"
        f" {broker.seconds:.3f} s{f' http={broker.http}' if broker.http else ''}"
    )


def _reload(reloads: Sequence[server.Reload]) -> None:
    """Reloads the files and settings that can change at runtime; a failed one is unchanged."""
    for reload in reloads:
        try:
            _log.info("reloaded at SIGHUP: %s", reload())
        except (AckqError, OSError) as error:
            _log.error("reload at SIGHUP failed, and changed nothing: %s", error)


def _reload_level(flags: Mapping[str, object]) -> str:
    level = settings(flags, os.environ).options.log_level
    set_level(level)
    return f"log-level is {level}"


def _write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader finds it whole or not at all."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
