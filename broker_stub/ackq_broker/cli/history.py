"""`ackq-broker new-history` and `accept-history`: histories of a data directory (Q8)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ackq_broker.cli.log import refusing, run
from ackq_broker.core import commands
from ackq_broker.engine import recovery
from ackq_broker.journal.tools.repair import begin_new_history

_DATA: Final = click.option(
    "--data", "directory", required=True, type=click.Path(path_type=Path), help="Data directory."
)


@click.command("new-history")
@_DATA
@refusing()
def new_history(directory: Path) -> None:
    """Mark a data directory as restored from a copy that the broker cannot detect.

    The broker detects copied files by itself. Run this command after restoring the snapshot of a
    volume or of a virtual machine, or a copy that was made while the broker ran. From then on the
    broker refuses older publishers, sessions, writers and links, until the history is accepted.
    """
    history_id = begin_new_history(directory)
    click.echo(f"the next start serves history {history_id}")


@click.command("accept-history")
@_DATA
def accept_history(directory: Path) -> None:
    """Let publishers, sessions, writers and links from before a restore or repair continue.

    The broker refuses them otherwise, because the journal may lack confirmed messages, or accepted
    and committed batches. While the broker runs, use `ackq broker accept-history`.
    """
    run(_accept(directory))


async def _accept(directory: Path) -> None:
    async with recovery.offline(directory) as recovered:
        engine = recovered.engine
        accepted: commands.RefusedByHistory = await engine.call(commands.AcceptHistory())
    click.echo(
        f"history {engine.history_id} accepted: publishers={accepted.publishers}"
        f" sessions={accepted.sessions} writers={accepted.writers} links={accepted.links} may go on"
    )
