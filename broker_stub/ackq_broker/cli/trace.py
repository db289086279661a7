"""`ackq-broker trace`: the story of a message, from the records that the journal still has (Q9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

import click

from ackq.errors import AckqError
from ackq.text import printable
from ackq_broker.cli.log import refuse
from ackq_broker.trace.replay import Replay, replay
from ackq_broker.trace.search import Search, search
from ackq_broker.trace.story import Line, notes, story, time_of

# A running broker may delete a segment or replace the snapshot while they are read.
_TRIES: Final = 5


class Traced(NamedTuple):
    """A search, and the replay of what it found; None: it found nothing."""

    found: Search
    done: Replay | None


@click.command()
@click.option(
    "--data",
    "directory",
    required=True,
    type=click.Path(path_type=Path),
    help="Data directory; a broker may have it open.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("message_id", metavar="MESSAGE_ID")
def trace(*, directory: Path, as_json: bool, message_id: str) -> None:
    """Tell the story of a message from the journal: also beside a running broker.

    Published, leased, read by which micro-batch, accepted or rejected, dead-lettered, redriven: all
    that the records which the journal still has say of MESSAGE_ID. It reads all of them.
    """
    try:
        found, done = _trace(directory, message_id)
    except (AckqError, OSError) as error:
        refuse(error)
    stories = [story(done, row) for row in found.rows] if done is not None else []
    told = notes(found, done, message_id)
    if as_json:
        document = {
            "message_id": message_id,
            "messages": [[line._asdict() for line in lines] for lines in stories],
            "notes": told,
        }
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for number, (row, lines) in enumerate(zip(found.rows, stories, strict=True), 1):
        of = f" ({number} of {len(stories)} with this id)" if len(stories) > 1 else ""
        click.echo(
            printable(f"message '{message_id}'{of}: row {row.number} of block {row.block_id}")
        )
        for line in lines:
            click.echo(printable(_line(line)))
    for note in told:
        click.echo(printable(note))


def _trace(directory: Path, message_id: str) -> Traced:
    for attempt in range(_TRIES):
        try:
            found = search(directory, message_id)
            return Traced(found, replay(directory, found) if found.rows else None)
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("the last try raises or returns")


def _line(line: Line) -> str:
    if not line.at_us:
        return f"  {'now':<27}  {'':<14}  {line.sentence}"
    return f"  {time_of(line.at_us):<27}  record {line.sequence:<7}  {line.sentence}"
