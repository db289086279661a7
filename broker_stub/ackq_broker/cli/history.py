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
    """Say that a data directory was restored from a copy, where the broker cannot tell.

    It tells by itself when files were copied. Say so after restoring the snapshot of a volume or of
    a virtual machine, or a copy that was made while the broker ran. Publishers, sessions and
    writers from before are refused from then on, until the history is accepted.
    """
    history_id = begin_new_history(directory)
    click.echo(f"the next start serves history {history_id}")


@click.command("accept-history")
@_DATA
def accept_history(directory: Path) -> None:
    """Let publishers, sessions and writers from before a restore or repair go on.

    They are refused otherwise, because the journal may lack what had been answered for: messages
    that were confirmed, batches that were accepted or committed. Beside a running broker use
    `ackq broker accept-history`.
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
