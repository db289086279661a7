"""`ackq-broker`: serves a data directory, or verifies, dumps and repairs its journal.

Commands that change a directory need it to themselves; a broker that has it open refuses them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, NoReturn

import click

from ackq import __version__, limits
from ackq.errors import AckqError, InvalidArgumentError
from ackq_broker.core import commands
from ackq_broker.journal import kill_at
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.journal.tools.dump import dump as dump_journal
from ackq_broker.journal.tools.new_history import begin_new_history
from ackq_broker.journal.tools.repair import repair as repair_journal
from ackq_broker.journal.tools.verify import verify as verify_journal
from ackq_broker.service import server
from ackq_broker.service.engine import recovery

_UNSOUND: Final = 1
_REFUSED: Final = 2

# A frame for 10,000 queues makes a hundred thousand objects that are no garbage: at Python's own
# threshold of 700 the collector took 30 % of the time of its decision.
_YOUNG_OBJECTS: Final = 50_000

_UNITS: Final = ("", "KiB", "MiB", "GiB")
_SIZE: Final = re.compile(f"([0-9]+)({'|'.join(_UNITS)})")

_DIRECTORY: Final = click.argument("directory", type=click.Path(path_type=Path))
_DATA: Final = click.option(
    "--data", "directory", required=True, type=click.Path(path_type=Path), help="Data directory."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ackq-broker")
def main() -> None:
    """Run the reference broker of ackq, and look after its data directory."""


@main.command()
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="Data directory; made if it is not there.",
)
@click.option(
    "--listen",
    default=limits.DEFAULT_ENDPOINT,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve; port 0 takes a free one.",
)
@click.option(
    "--no-sync",
    is_flag=True,
    help="Do not sync to disk: for tests only, a power cut then loses confirmed messages.",
)
@click.option(
    "--port-file",
    type=click.Path(path_type=Path),
    help="Write the port there once the broker serves.",
)
@click.option(
    "--memory-limit",
    metavar="SIZE",
    default="",
    envvar="ACKQ_MEMORY_LIMIT",
    help="Memory that the broker may use, such as 1GiB: near it publishers are blocked. Half of"
    " what the machine or the cgroup has, unless given.",
)
@click.option("--stop-at-eof", is_flag=True, help="Shut down when standard input ends.")
def serve(
    *,
    data: Path,
    listen: str,
    no_sync: bool,
    port_file: Path | None,
    memory_limit: str,
    stop_at_eof: bool,
) -> None:
    """Serve a data directory until SIGTERM or SIGINT."""
    _configure_log()
    try:
        host, port = _address(listen)
        failpoint = os.environ.get("ACKQ_FAILPOINT")
        options = server.Options(
            data,
            host,
            port,
            sync=not no_sync,
            failpoint=kill_at(failpoint) if failpoint else unarmed,
            memory_limit=_memory(memory_limit) if memory_limit else 0,
        )

        def ready(broker: server.Ready) -> None:
            gc.freeze()  # what is there now stays, and is not walked through again
            gc.set_threshold(_YOUNG_OBJECTS)
            if port_file is not None:
                _write_whole(port_file, f"{broker.port}\n")
            click.echo(
                f"ackq-broker {__version__} listening on {host}:{broker.port} data={data}"
                f" sync={'none' if no_sync else 'fdatasync'} history={broker.history_id}"
                f" recovered={broker.recovered} records in {broker.seconds:.3f} s"
            )

        asyncio.run(_serve(options, ready, stop_at_eof=stop_at_eof))
    except (AckqError, OSError) as error:
        _refuse(error)


@main.command()
@_DIRECTORY
def verify(directory: Path) -> None:
    """Check a journal that no broker has open; change nothing. Exit status 1 when it is damaged."""
    try:
        report = verify_journal(directory)
    except (AckqError, OSError) as error:
        _refuse(error)
    for flaw in report.flaws:
        click.echo(f"damaged: {flaw.path} byte {flaw.offset}: {flaw.reason}")
    for block_id in report.lost_blocks:
        click.echo(f"lost: block {block_id} cannot be read: 'ackq-broker repair' drops its rows")
    click.echo(
        f"{report.groups} groups up to record {report.end.sequence},"
        f" torn tail {report.torn_bytes} bytes, {len(report.flaws)} flaws,"
        f" {len(report.lost_blocks)} lost blocks:"
        f" {'the journal opens' if report.opens else 'the journal does not open'}"
    )
    if report.flaws or report.lost_blocks:
        sys.exit(_UNSOUND)


@main.command()
@_DIRECTORY
def dump(directory: Path) -> None:
    """Print every file, group and record of a journal; also beside a running broker."""
    try:
        for line in dump_journal(directory):
            click.echo(line)
    except BrokenPipeError:
        # The reader, `head` perhaps, has seen enough; click ends quietly.
        raise
    except (AckqError, OSError) as error:
        _refuse(error)


@main.command()
@click.option(
    "--keep-damaged/--delete-damaged",
    required=True,
    help="Whether to keep the files as they were, in a folder of the data directory.",
)
@_DIRECTORY
def repair(*, directory: Path, keep_damaged: bool) -> None:
    """Make a damaged journal open again, without what cannot be read, as a new history.

    Messages that cannot be read leave their queues. Publishers, sessions and writers from before
    are refused until the history is accepted.
    """
    try:
        done = repair_journal(directory, keep_damaged=keep_damaged)
    except (AckqError, OSError) as error:
        _refuse(error)
    if not (done.changed or done.lost_blocks):
        click.echo("The journal is sound; nothing was changed.")
        return
    if done.cut is not None:
        click.echo(f"cut at {done.cut.path} byte {done.cut.offset}: {done.cut.reason}")
    if done.changed:
        click.echo(
            f"repaired: the journal ends at record {done.end.sequence},"
            f" {len(done.lost_blocks)} blocks are lost, history {done.history_id}"
        )
    if done.kept_in is not None:
        click.echo(f"the files as they were are in {done.kept_in}")
    _run(_drop_lost(directory))


@main.command("new-history")
@_DATA
def new_history(directory: Path) -> None:
    """Say that a data directory was restored from a copy, where the broker cannot tell.

    It tells by itself when files were copied. Say so after restoring the snapshot of a volume or of
    a virtual machine, or a copy that was made while the broker ran. Publishers, sessions and
    writers from before are refused from then on, until the history is accepted.
    """
    try:
        history_id = begin_new_history(directory)
    except (AckqError, OSError) as error:
        _refuse(error)
    click.echo(f"the next start serves history {history_id}")


@main.command("accept-history")
@_DATA
def accept_history(directory: Path) -> None:
    """Let publishers, sessions and writers from before a restore or repair go on.

    They are refused otherwise, because the journal may lack what had been answered for: messages
    that were confirmed, batches that were accepted or committed. Beside a running broker use
    `ackq broker accept-history`.
    """
    _run(_accept(directory))


async def _drop_lost(directory: Path) -> None:
    """Opens a repaired journal, which drops the messages that cannot be read, and prints them."""
    async with recovery.offline(directory) as recovered:
        for queue, messages in recovered.lost:
            click.echo(f"dropped: {messages} messages of queue '{queue}'")
        if recovered.lost_stages:
            click.echo(f"dropped: {recovered.lost_stages} stages, whose batches have to run again")
        refused = recovered.engine.core.refused_by_history()
    if any(refused):
        click.echo(
            f"refused from now on: publishers={refused.publishers} sessions={refused.sessions}"
            f" writers={refused.writers}, until 'ackq-broker accept-history --data {directory}'"
        )


async def _accept(directory: Path) -> None:
    async with recovery.offline(directory) as recovered:
        engine = recovered.engine
        accepted: commands.RefusedByHistory = await engine.call(commands.AcceptHistory())
    click.echo(
        f"history {engine.history_id} accepted: publishers={accepted.publishers}"
        f" sessions={accepted.sessions} writers={accepted.writers} may go on"
    )


class _UtcFormatter(logging.Formatter):
    """Times in UTC with milliseconds, as in `2013-01-01T00:00:00.000Z`."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def _configure_log() -> None:
    """Sends the log to stderr: one line per event, tracebacks after their line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_UtcFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _run(work: Coroutine[None, None, None]) -> None:
    """Runs work on an event loop; an error ends the program with one line."""
    _configure_log()
    try:
        asyncio.run(work)
    except (AckqError, OSError) as error:
        _refuse(error)


async def _serve(options: server.Options, ready: server.OnReady, *, stop_at_eof: bool) -> None:
    """Serves until a signal, or the end of standard input, asks to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stop_at_eof:

        def wait_for_eof() -> None:
            while os.read(sys.stdin.fileno(), 1024):
                pass
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait_for_eof, name="stdin", daemon=True).start()
    await server.serve(options, stop, ready)


def _address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host stands in brackets."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004
        raise InvalidArgumentError(f"--listen {listen!r} is not HOST:PORT.", listen=listen)
    return host, int(port)


def _memory(size: str) -> int:
    """The bytes of a size such as 512MiB, 2GiB or 1000000000."""
    found = _SIZE.fullmatch(size)
    size_bytes = int(found[1]) * limits.KIB ** _UNITS.index(found[2]) if found else 0
    if size_bytes < limits.MIN_MEMORY_BYTES:
        raise InvalidArgumentError(
            f"--memory-limit {size!r} is no size of {limits.MIN_MEMORY_BYTES} bytes or more, such"
            " as 1GiB.",
            memory_limit=size,
        )
    return size_bytes


def _write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader finds it whole or not at all."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _refuse(error: Exception) -> NoReturn:
    """Ends with one line that names the cause."""
    click.echo(f"ackq-broker: {error}", err=True)
    sys.exit(_REFUSED)


if __name__ == "__main__":
    main(prog_name="ackq-broker")
