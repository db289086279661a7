"""`ackq queue`: declares, lists, shows, empties and deletes queues (Q1, Q3-Q5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.dead_letters import peek, redrive
from ackq.cli.output import age, as_dict, print_fields, print_infos, print_json
from ackq.cli.parameters import DURATION, SIZE, Instant, confirm, yes_option
from ackq.diagnosis import wording

if TYPE_CHECKING:
    from ackq.info import QueueInfo

# The sort keys of a list other than the name: the largest comes first.
_SORTS: Final[dict[str, Callable[[QueueInfo], int]]] = {
    "ready": lambda each: each.ready,
    "unacked": lambda each: each.unacked,
    "bytes": lambda each: each.payload_bytes,
    "oldest": lambda each: each.oldest_age_ms,
}
_COLUMNS: Final[dict[str, str | Callable[[QueueInfo], object]]] = {
    "QUEUE": "queue",
    "READY": "ready",
    "UNACKED": "unacked",
    "DELAYED": "delayed",
    "STAGED": "staged",
    "BYTES": "payload_bytes",
    "OLDEST": lambda each: age(each.oldest_age_ms),
    "DURABLE": "properties.durable",
    "CONSUMERS": "consumers",
    "SESSIONS": lambda each: list(each.sessions),
    "DEAD LETTERS": lambda each: each.properties.dead_letter_queue or "-",
}


@click.group(cls=Group)
def queue() -> None:
    """Declare, show, empty, redrive and delete queues, and peek into them."""


@queue.command()
@click.argument("name")
@click.option(
    "--durable/--no-durable",
    default=True,
    show_default=True,
    help="Whether the queue survives a restart of the broker.",
)
@click.option(
    "--max-length",
    type=click.IntRange(0),
    default=0,
    help="Maximum number of messages: all, staged ones included; with drop-head the ready ones.",
)
@click.option(
    "--max-bytes",
    type=SIZE,
    default=0,
    help="Maximum payload bytes of the messages that --max-length counts: 64m is 64 MiB.",
)
@click.option(
    "--overflow",
    type=click.Choice(["reject-publish", "drop-head"]),
    default="reject-publish",
    show_default=True,
    help="Behaviour at the bound: refuse publishes, or drop the oldest ready messages.",
)
@click.option(
    "--message-ttl",
    "message_ttl_ms",
    type=DURATION,
    default=0,
    help="Time from publish to expiry of a message, which then moves to the dead-letter queue if"
    " there is one: 5m is five minutes, 500ms half a second.",
)
@click.option(
    "--expires",
    "expires_ms",
    type=DURATION,
    default=0,
    help="Time without a consumer, session or link after which the queue is deleted with its"
    " messages, which become no dead letters; publishing is no use.",
)
@click.option(
    "--delivery-limit",
    type=click.IntRange(0),
    default=0,
    help="Number of FAILED deliveries allowed; needs --dead-letter-queue or --drop-on-limit.",
)
@click.option(
    "--dead-letter-queue",
    default="",
    help="Queue for rejected and expired messages, and those beyond the delivery limit.",
)
@click.option(
    "--redelivery-delay",
    "redelivery_delay_ms",
    type=DURATION,
    default=0,
    help="Delay before a FAILED message is ready again; doubles with each failure.",
)
@click.option(
    "--redelivery-delay-max",
    "redelivery_delay_max_ms",
    type=DURATION,
    default=0,
    help="Maximum redelivery delay; default: 5m.",
)
@click.option(
    "--drop-on-limit",
    is_flag=True,
    help="Drop messages at the delivery limit if there is no dead-letter queue.",
)
@click.option(
    "--retain",
    "retain_ms",
    type=DURATION,
    default=0,
    help="How long messages that consumers accepted stay, for `ackq queue rewind`: 24h is a day.",
)
@click.option("--passive", is_flag=True, help="Only check that the queue exists.")
@connected
def declare(target: Target, *, name: str, **properties: object) -> None:
    """Create the queue NAME, or check that it exists with these properties."""
    with target.admin() as admin:
        done = admin.declare_queue(name, **properties)  # type: ignore[arg-type]
    text = f"queue '{name}' {'created' if done.created else 'exists'}"
    target.answer({"queue": name, **as_dict(done)}, text)


@queue.command("list")
@click.option(
    "--name",
    "pattern",
    default="",
    metavar="PATTERN",
    help="Only queues with such a name: * stands for any characters, ? for one.",
)
@click.option("--not-empty", is_flag=True, help="Only queues that hold messages.")
@click.option(
    "--sort",
    type=click.Choice(["name", *_SORTS]),
    default="name",
    show_default=True,
    help="Order: by name ascending, by any other key the largest first.",
)
@click.option("-n", "--limit", type=click.IntRange(1), help="Maximum number of queues.")
@click.option(
    "--after",
    default="",
    metavar="NAME",
    help="Only queues with a name after this one, such as the last one of the previous page.",
)
@connected
def list_queues(
    target: Target, *, pattern: str, not_empty: bool, sort: str, limit: int | None, after: str
) -> None:
    """List the queues."""
    if after and sort != "name":
        raise click.UsageError("--after needs --sort name.")
    by_name = sort == "name"
    with target.admin() as admin:
        found = admin.queues(
            pattern, not_empty=not_empty, after=after, limit=(limit or 0) if by_name else 0
        )
    if not by_name:
        found = sorted(found, key=_SORTS[sort], reverse=True)[:limit]
    print_infos(found, _COLUMNS, as_json=target.as_json)


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
@click.option(
    "--force", is_flag=True, help="Delete the queue although sessions, stages or messages use it."
)
@click.option(
    "--if-empty",
    is_flag=True,
    help="Refuse if the queue holds messages; does not ask for confirmation.",
)
@yes_option
@connected
def delete(target: Target, *, name: str, force: bool, if_empty: bool, yes: bool) -> None:
    """Remove the queue NAME with its messages.

    Asks for confirmation, with the number of messages.
    """
    with target.admin() as admin:
        found = admin.queue(name)
        count = found.ready + found.delayed + found.unacked
        confirm(
            f"Delete queue '{name}' and its {wording.count(count, 'message')}?", yes=yes or if_empty
        )
        gone = as_dict(admin.delete_queue(name, force=force, if_empty=if_empty))
    text = f"queue '{name}' deleted: ready={gone['ready']} unacked={gone['unacked']}"
    target.answer({"queue": name, **gone}, text)


@queue.command()
@click.argument("name")
@yes_option
@connected
def purge(target: Target, *, name: str, yes: bool) -> None:
    """Remove the ready messages of the queue NAME.

    Asks for confirmation, with the number of messages.
    """
    with target.admin() as admin:
        ready = admin.queue(name).ready
        confirm(f"Remove the {wording.count(ready, 'message')} ready in queue '{name}'?", yes=yes)
        purged = admin.purge_queue(name)
    text = f"queue '{name}' purged: {wording.count(purged, 'message')}"
    target.answer({"queue": name, "purged": purged}, text)


@queue.command()
@click.argument("name")
@click.option(
    "--to-time",
    metavar="TIME",
    type=Instant(),
    help="Deliver what was accepted from this time on, for instance 2026-11-24T18:00Z.",
)
@click.option("--earliest", is_flag=True, help="Deliver all that is retained.")
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@connected
def rewind(
    target: Target, *, name: str, to_time: int | None, earliest: bool, dry_run: bool
) -> None:
    """Let consumers of the queue NAME read again what they accepted.

    The messages are ready again, before newer ones, and are delivered as redelivered. The queue
    must have been declared with --retain. What Spark queries accepted: ackq session rewind.
    """
    if (to_time is not None) + earliest != 1:
        raise click.UsageError("Give one of --to-time and --earliest.")
    with target.admin() as admin:
        messages = admin.rewind_queue(name, from_us=to_time or 0, dry_run=dry_run)
    done = "would be ready again" if dry_run else "ready again"
    text = f"queue '{name}': {wording.count(messages, 'message')} {done}"
    target.answer({"queue": name, "messages": messages}, text)


for each in (redrive, peek):
    queue.add_command(each)
