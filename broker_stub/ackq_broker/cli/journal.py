"""`ackq-broker verify`, `dump` and `repair`: the journal of a data directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from ackq_broker.cli.log import refusing, run
from ackq_broker.core import views
from ackq_broker.core.checks import plural
from ackq_broker.engine import recovery
from ackq_broker.journal.tools.dump import dump as dump_journal
from ackq_broker.journal.tools.repair import repair as repair_journal
from ackq_broker.journal.tools.verify import verify as verify_journal

_UNSOUND: Final = 1
_DIRECTORY: Final = click.argument("directory", type=click.Path(path_type=Path))


@click.command()
@_DIRECTORY
@refusing()
def verify(directory: Path) -> None:
    """Check a journal that no broker has open, and change nothing; exit status 1 if damaged."""
    report = verify_journal(directory)
    for flaw in report.flaws:
        click.echo(f"damaged: {flaw.path} byte {flaw.offset}: {flaw.reason}")
    for block_id in report.lost_blocks:
        click.echo(f"lost: block {block_id} cannot be read: 'ackq-broker repair' drops its rows")
    click.echo(
        f"{plural(report.groups, 'group')} up to record {report.end.sequence},"
        f" torn tail {plural(report.torn_bytes, 'byte')}, {plural(len(report.flaws), 'flaw')},"
        f" {plural(len(report.lost_blocks), 'lost block')}:"
        f" {'the journal opens' if report.opens else 'the journal does not open'}"
    )
    if report.flaws or report.lost_blocks:
        sys.exit(_UNSOUND)


@click.command()
@_DIRECTORY
@refusing()
def dump(directory: Path) -> None:
    """Print every file, group and record of a journal; a broker may have it open."""
    for line in dump_journal(directory):
        click.echo(line)


@click.command()
@click.option(
    "--keep-damaged/--delete-damaged",
    required=True,
    help="Keep the originals of changed files in a folder of the data directory, or delete them.",
)
@_DIRECTORY
@refusing()
def repair(*, directory: Path, keep_damaged: bool) -> None:
    """Make a damaged journal open again, without its unreadable data, as a new history.

    Unreadable messages are dropped from their queues. Older publishers, sessions, writers and links
    are refused until the history is accepted.
    """
    size = recovery.segment_size(directory)  # repair forgets it
    done = repair_journal(directory, keep_damaged=keep_damaged, segment_bytes=size)
    if not (done.changed or done.lost_blocks):
        click.echo("The journal is sound; nothing was changed.")
        return
    if done.cut is not None:
        click.echo(f"cut at {done.cut.path} byte {done.cut.offset}: {done.cut.reason}")
    if done.changed:
        click.echo(
            f"repaired: the journal ends at record {done.end.sequence},"
            f" {plural(len(done.lost_blocks), 'block')} lost, history {done.history_id}"
        )
    if done.kept_in is not None:
        click.echo(f"the original files are in {done.kept_in}")
    run(_drop_lost(directory, size))


async def _drop_lost(directory: Path, segment_bytes: int) -> None:
    """Opens a repaired journal, which drops the unreadable messages, and prints their number."""
    async with recovery.offline(directory, segment_bytes) as recovered:
        for queue, messages in recovered.lost:
            click.echo(f"dropped: {plural(messages, 'message')} of queue '{queue}'")
        if recovered.lost_stages:
            stages = plural(recovered.lost_stages, "stage")
            click.echo(f"dropped: {stages}: run their batches again")
        refused = views.refused_by_history(recovered.engine.core.state)
    if any(refused):
        click.echo(
            f"refused from now on: publishers={refused.publishers} sessions={refused.sessions}"
            f" writers={refused.writers} links={refused.links}, until"
            f" 'ackq-broker accept-history --data {directory}'"
        )
