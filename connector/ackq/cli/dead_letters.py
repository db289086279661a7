"""`ackq queue peek` and `redrive`: shows messages and dead letters, redrives them (Q5, Q6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from ackq import client
from ackq.cli.context import Target, connected
from ackq.cli.output import (
    PREVIEW_BYTES,
    age,
    plain_row,
    preview,
    print_json,
    print_table,
)

_CAUSES: Final = ("rejected", "expired", "delivery_limit")
# Prefix of the headers that the broker gives a dead letter (C13), those that each dead letter has,
# and those with a number.
_PREFIX: Final = "ackq-dead-"
_ALWAYS: Final = frozenset(
    {"queue", "position", "cause", "reason", "deliveries", "at", "first_queue", "count"}
)
_NUMBERS: Final = frozenset({"position", "deliveries", "count", "batch"})
# The columns of the table: no others are fetched.
_SHOWN: Final = (
    "position",
    "leased",
    "delivery_count",
    "routing_key",
    "message_id",
    "headers",
    "body",
)


@click.command()
@click.argument("name")
@click.option(
    "-n", "--count", type=click.IntRange(1), help="Maximum number of messages, from the head."
)
@click.option("--first-position", type=click.IntRange(1), help="First position to redrive.")
@click.option("--last-position", type=click.IntRange(1), help="Last position to redrive.")
@click.option("--cause", type=click.Choice(_CAUSES), help="Only dead letters with this cause.")
@click.option("--reason", default="", metavar="TEXT", help="Only dead letters with this reason.")
@click.option(
    "--to",
    "to_queue",
    default="",
    metavar="QUEUE",
    help="Queue to move the messages to, instead of those that they came from.",
)
@connected
def redrive(
    target: Target,
    *,
    name: str,
    count: int | None,
    first_position: int | None,
    last_position: int | None,
    cause: client.DeathCause | None,
    reason: str,
    to_queue: str,
) -> None:
    """Move the messages of the dead-letter queue NAME back to the queues they came from.

    A message that is dead-lettered again while the command runs stays.
    """
    with target.admin() as admin:
        moved = admin.redrive(
            name,
            first_position=first_position or 0,
            last_position=last_position or 0,
            max_messages=count or 0,
            cause=cause or "",
            reason=reason,
            to_queue=to_queue,
        )
    text = f"queue '{name}' redriven: messages={moved.messages} left={moved.left}"
    target.answer({"queue": name, "messages": moved.messages, "left": moved.left}, text)


@click.command()
@click.argument("name")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option("--position", type=click.IntRange(1), default=1, help="First position to show.")
@connected
def peek(target: Target, *, name: str, count: int, position: int) -> None:
    """Show messages of the queue NAME without consuming them; for dead letters also the cause.

    DELIVERIES is the number of deliveries so far. With --json bodies are whole; the table fetches
    only the start of each.
    """
    with target.admin() as admin:
        batches = admin.browse(
            name,
            first_position=position,
            max_messages=count,
            columns=None if target.as_json else _SHOWN,
            max_body_bytes=0 if target.as_json else PREVIEW_BYTES,
        )
        rows = [_counted(row) for batch in batches for row in batch.to_pylist()]
    if target.as_json:
        print_json([{**plain_row(row), "dead_letter": death(row)} for row in rows])
        return
    deaths = [death(row) for row in rows]
    more = ("DIED OF", "FROM", "AGO", "TIMES") if any(deaths) else ()
    print_table(
        ("POSITION", "LEASED", "DELIVERIES", "ROUTING KEY", "MESSAGE ID", *more, "BODY"),
        (
            (
                row["position"],
                row["leased"],
                row["deliveries"],
                row["routing_key"],
                row["message_id"] or "",
                *(_cells(died) if more else ()),
                preview(row["body"], row["body_bytes"]),
            )
            for row, died in zip(rows, deaths, strict=True)
        ),
    )


def death(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The dead-letter headers of a message (C13) as JSON values; None if it is no dead letter."""
    found = {
        name.removeprefix(_PREFIX).replace("-", "_"): value
        for name, value in dict(row["headers"] or ()).items()
        if name.startswith(_PREFIX)
    }
    if not found.keys() >= _ALWAYS:
        return None
    try:
        _ago_ms(found["at"])
        return {name: int(value) if name in _NUMBERS else value for name, value in found.items()}
    except (TypeError, ValueError):  # headers of a publisher
        return None


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """The row with `deliveries`, the number so far, in place of `delivery_count`."""
    count = row.pop("delivery_count")
    return {**row, "deliveries": count - (not row["leased"])}


def _cells(died: Mapping[str, Any] | None) -> Sequence[object]:
    """Cells of a dead letter: cause, origin queue, age, and times it died of it in that queue."""
    if died is None:
        return ("-", "-", "-", "-")
    cause, reason = died["cause"], died["reason"]
    return (
        cause if reason == cause else f"{cause}: {reason}",
        died["queue"],
        age(_ago_ms(died["at"])),
        died["count"],
    )


def _ago_ms(at: str) -> int:
    return max(0, round((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() * 1000))
