"""`ackq trace`: shows where a message is now (Q9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click
import pyarrow as pa
import pyarrow.compute as pc

from ackq.cli.context import Target, connected
from ackq.cli.failure import ExitStatus, Failure
from ackq.cli.output import print_json
from ackq.client import Admin
from ackq.diagnosis.message_path import Hit, not_found, path_of
from ackq.diagnosis.wording import count
from ackq.errors import PermissionDeniedError, QueueNotFoundError, SessionNotFoundError
from ackq.text import printable

# Messages of one call, so that the broker's uninterrupted work for it stays short (I6).
_SLICE: Final = 10_000
_COLUMNS: Final = ("message_id", "published_at", "headers", "position", "delivery_count", "leased")
_MOST: Final = 100
_SHOWN: Final = 20


@click.command()
@click.argument("message_id", metavar="MESSAGE_ID")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Queue to search; repeatable. Default: all queues.",
)
@connected
def trace(
    target: Target,
    *,
    message_id: str,
    queues: tuple[str, ...],
) -> None:
    """Show where message MESSAGE_ID is: its queue, its holder, why it is a dead letter.

    Searches all messages of the queues and changes none. Several messages may have the same id.
    Exit status 3: no queue has one now.
    """
    with target.admin() as admin:
        names = queues or tuple(each.queue for each in admin.queues())
        hits, looked_at, closed = _search(admin, names, message_id)
    if target.as_json:
        print_json(
            {
                "message_id": message_id,
                "looked_at": looked_at,
                "closed": closed,
                "found": [hit.as_dict() for hit in hits],
            }
        )
    for hit in () if target.as_json else hits:
        for sentence in path_of(hit):
            click.echo(printable(sentence))
    if closed and not target.as_json:
        some = ", ".join(f"'{name}'" for name in closed[:_SHOWN])
        skipped = count(len(closed), "queue")
        click.echo(printable(f"Not searched, as this user may not read them: {skipped} ({some})."))
    if not hits:
        message = not_found(message_id, looked_at, names)
        raise Failure(
            message, ExitStatus.NOT_FOUND, "message_not_found", {"message_id": message_id}
        )


class _Searched(NamedTuple):
    """Result of a search: `_MOST` hits at most, messages looked at, queues closed to this user."""

    hits: list[Hit]
    looked_at: int
    closed: list[str]


def _search(admin: Admin, names: Sequence[str], message_id: str) -> _Searched:
    """Searches queues for an id; a queue that is named alone has to exist and be readable."""
    hits: list[Hit] = []
    closed: list[str] = []
    looked_at = 0
    for name in names:
        try:
            for batch in _slices(admin, name):
                looked_at += batch.num_rows
                for position in _positions(batch, message_id):
                    hits += _hit(admin, name, position, message_id)
                    if len(hits) >= _MOST:
                        return _Searched(hits, looked_at, closed)
        except (QueueNotFoundError, PermissionDeniedError) as error:
            if len(names) == 1:
                raise
            closed += [name] if isinstance(error, PermissionDeniedError) else []
    return _Searched(hits, looked_at, closed)


def _slices(admin: Admin, name: str) -> Iterator[pa.RecordBatch]:
    """Ids and positions of a queue's messages, `_SLICE` of them per call."""
    first = 1
    while first:
        following = 0
        for batch in admin.browse(
            name, first_position=first, max_messages=_SLICE, columns=("message_id", "position")
        ):
            if batch.num_rows:
                following = batch.column(1)[batch.num_rows - 1].as_py() + 1
                yield batch
        first = following


def _positions(batch: pa.RecordBatch, message_id: str) -> list[int]:
    same = pc.fill_null(pc.equal(batch.column(0), message_id), fill_value=False)
    found: list[int] = batch.column(1).filter(same).to_pylist()
    return found


def _hit(admin: Admin, name: str, position: int, message_id: str) -> list[Hit]:
    """The message with this id at a position, if the queue still has it."""
    rows = [
        row
        for batch in admin.browse(
            name, first_position=position, last_position=position, columns=_COLUMNS
        )
        for row in batch.to_pylist()
        if row["message_id"] == message_id
    ]
    if not rows:
        return []
    row: dict[str, Any] = rows[0]
    holdings = admin.holdings(name, position=position).holdings if row["leased"] else []
    holding = holdings[0] if holdings else None
    session = None
    if holding is not None and holding.session:
        try:
            session = admin.session(holding.session)
        except SessionNotFoundError:
            holding = None
    return [Hit(name, row, holding, session)]
