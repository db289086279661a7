"""`ackq queue`: declares, lists, shows, empties, redrives, deletes and peeks (Q1, Q3-Q6)."""

from __future__ import annotations

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import age, as_dict, plain_row, preview, print_fields, print_json, print_table
from ackq.wire.columns import BROWSED


@click.group(cls=Group)
def queue() -> None:
    """Declare, show, empty, redrive and delete queues, and peek into them."""


@queue.command()
@click.argument("name")
@click.option("--durable/--no-durable", default=True, show_default=True, help="Survives a restart.")
@click.option(
    "--max-length",
    type=click.IntRange(0),
    default=0,
    help="Bound on messages: all, staged ones too, or with drop-head the ready ones.",
)
@click.option(
    "--max-bytes", type=click.IntRange(0), default=0, help="Bound on payload bytes, of the same."
)
@click.option(
    "--overflow",
    type=click.Choice(["reject-publish", "drop-head"]),
    default="reject-publish",
    show_default=True,
    help="What happens at the bound.",
)
@click.option(
    "--message-ttl-ms",
    type=click.IntRange(0),
    default=0,
    help="Messages expire so long after publish, to the dead-letter queue if there is one.",
)
@click.option(
    "--expires-ms", type=click.IntRange(0), default=0, help="The queue goes when unused so long."
)
@click.option(
    "--delivery-limit",
    type=click.IntRange(0),
    default=0,
    help="FAILED deliveries allowed, with --dead-letter-queue or --drop-on-limit.",
)
@click.option(
    "--dead-letter-queue", default="", help="Takes rejected, expired and over-limit messages."
)
@click.option(
    "--redelivery-delay-ms",
    type=click.IntRange(0),
    default=0,
    help="A FAILED message waits so long at first, then twice as long each time.",
)
@click.option(
    "--redelivery-delay-max-ms", type=click.IntRange(0), default=0, help="... and never longer."
)
@click.option("--drop-on-limit", is_flag=True, help="Drop at the limit, with no dead-letter queue.")
@click.option("--passive", is_flag=True, help="Only check that the queue exists.")
@connected
def declare(target: Target, *, name: str, **properties: object) -> None:
    """Make the queue NAME, or confirm that it exists with these properties."""
    with target.admin() as admin:
        done = admin.declare_queue(name, **properties)  # type: ignore[arg-type]
    if target.as_json:
        print_json({"queue": name, **as_dict(done)})
    else:
        click.echo(f"queue '{name}' {'created' if done.created else 'exists'}")


@queue.command("list")
@connected
def list_queues(target: Target) -> None:
    """List the queues."""
    with target.admin() as admin:
        found = admin.queues()
    if target.as_json:
        print_json([as_dict(each) for each in found])
        return
    print_table(
        (
            "QUEUE",
            "READY",
            "UNACKED",
            "DELAYED",
            "STAGED",
            "BYTES",
            "OLDEST",
            "DURABLE",
            "CONSUMERS",
            "SESSIONS",
            "DEAD LETTERS",
        ),
        (
            (
                each.queue,
                each.ready,
                each.unacked,
                each.delayed,
                each.staged,
                each.payload_bytes,
                age(each.oldest_age_ms),
                each.properties.durable,
                each.consumers,
                list(each.sessions),
                each.properties.dead_letter_queue or "-",
            )
            for each in found
        ),
    )


@queue.command()
@click.argument("name")
@connected
def show(target: Target, *, name: str) -> None:
    """Show the queue NAME with its properties."""
    with target.admin() as admin:
        fields = as_dict(admin.queue(name))
    if target.as_json:
        print_json(fields)
    else:
        properties = fields.pop("properties")
        print_fields({**fields, **properties})


@queue.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also when sessions, stages or messages use it.")
@click.option("--if-empty", is_flag=True, help="Refuse unless it holds no message.")
@connected
def delete(target: Target, *, name: str, force: bool, if_empty: bool) -> None:
    """Remove the queue NAME."""
    with target.admin() as admin:
        gone = as_dict(admin.delete_queue(name, force=force, if_empty=if_empty))
    if target.as_json:
        print_json({"queue": name, **gone})
    else:
        click.echo(f"queue '{name}' deleted: ready={gone['ready']} unacked={gone['unacked']}")


@queue.command()
@click.argument("name")
@connected
def purge(target: Target, *, name: str) -> None:
    """Remove the ready messages of the queue NAME."""
    with target.admin() as admin:
        purged = admin.purge_queue(name)
    if target.as_json:
        print_json({"queue": name, "purged": purged})
    else:
        click.echo(f"queue '{name}' purged: {purged} messages")


@queue.command()
@click.argument("name")
@click.option("-n", "--count", type=click.IntRange(1), help="At most so many, from the head.")
@click.option("--first-position", type=click.IntRange(1), help="From this position on.")
@click.option("--last-position", type=click.IntRange(1), help="Up to this position.")
@connected
def redrive(
    target: Target,
    *,
    name: str,
    count: int | None,
    first_position: int | None,
    last_position: int | None,
) -> None:
    """Move the messages of the dead-letter queue NAME back to the queues they came from.

    What dies again while this goes on stays.
    """
    with target.admin() as admin:
        moved = admin.redrive(
            name,
            first_position=first_position or 0,
            last_position=last_position or 0,
            max_messages=count or 0,
        )
    if target.as_json:
        print_json({"queue": name, "messages": moved.messages, "left": moved.left})
    else:
        click.echo(f"queue '{name}' redriven: messages={moved.messages} left={moved.left}")


@queue.command()
@click.argument("name")
@click.option("-n", "--count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--position", type=click.IntRange(1), default=1, help="From this position on.")
@connected
def peek(target: Target, *, name: str, count: int, position: int) -> None:
    """Show messages of the queue NAME without consuming them."""
    with target.admin() as admin:
        batches = admin.browse(
            name, first_position=position, max_messages=count, columns=tuple(BROWSED)
        )
        rows = [row for batch in batches for row in batch.to_pylist()]
    if target.as_json:
        print_json([plain_row(row) for row in rows])
        return
    print_table(
        ("POSITION", "LEASED", "DELIVERIES", "ROUTING KEY", "MESSAGE ID", "BODY"),
        (
            (
                row["position"],
                row["leased"],
                # A ready message carries the number of its next delivery.
                row["delivery_count"] - (not row["leased"]),
                row["routing_key"],
                row["message_id"] or "",
                preview(row["body"]),
            )
            for row in rows
        ),
    )
