"""`ackq-broker set-clock`: the time of a broker whose clock was ahead (Q8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from ackq_broker.cli.log import configure_log, refusing
from ackq_broker.engine import recovery

_SECOND_US = 1_000_000


@click.command("set-clock")
@click.option(
    "--data", "directory", required=True, type=click.Path(path_type=Path), help="Data directory."
)
@refusing()
def set_clock(directory: Path) -> None:
    """Set the time of a stopped broker back to the machine's clock, once that is right.

    A broker's time never runs backwards: after the machine's clock was years ahead it stands still
    for years, and nothing expires, no delay ends and nothing is forgotten. This sets it right.

    What was waiting waits as long as it still had to when the broker stopped: messages expire,
    delays end and what is remembered is forgotten that much later than now, and nothing earlier.
    What happened while the clock was ahead counts as of now, in ages and in delays of batches.
    What expired because the clock was ahead is gone. Publish times in messages, and headers of dead
    letters, stay as they were written. Nothing else changes, and the history stays.
    """
    configure_log()
    back_us = asyncio.run(recovery.set_clock(directory))
    if back_us:
        click.echo(f"the broker's time was set back by {back_us // _SECOND_US} s, to now")
    else:
        click.echo("the broker's time is not ahead of the machine's clock; nothing was changed")
