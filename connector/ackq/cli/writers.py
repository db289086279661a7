"""`ackq batch` and `ackq writer`: shows and drops staged batches; manages writers (K3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import age, as_dict, print_fields, print_infos, print_json
from ackq.cli.parameters import DURATION

if TYPE_CHECKING:
    from ackq.info import BatchInfo, StageInfo, WriterInfo


@click.group(cls=Group)
def batch() -> None:
    """Show batches of writers that are staged and not committed; drop those of dead writes."""


@batch.command("list")
@click.option("--queue", default="", metavar="NAME", help="Only batches with rows for this queue.")
@connected
def list_batches(target: Target, *, queue: str) -> None:
    """List the staged batches, which take up room in their queues until they are committed."""
    with target.admin() as admin:
        found = admin.batches(queue)
    print_infos(
        found,
        {
            "WRITER": "writer",
            "BATCH": "batch_id",
            "STATE": _state,
            "STAGES": "stages",
            "ROWS": "rows",
            "BYTES": "payload_bytes",
            "AGE": _age,
            "USER": _user,
            "QUEUES": _targets,
        },
        as_json=target.as_json,
    )


@batch.command()
@click.argument("writer")
@click.argument("batch_id", metavar="BATCH", type=click.IntRange(0))
@connected
def show(target: Target, *, writer: str, batch_id: int) -> None:
    """Show the batch BATCH of WRITER with its stages, one for each task."""
    with target.admin() as admin:
        found = admin.batch(writer, batch_id)
    fields = as_dict(found)
    if target.as_json:
        print_json(fields)
        return
    del fields["details"]
    print_fields({**fields, "targets": _targets(found), "state": _state(found)})
    click.echo()
    print_infos(
        found.details,
        {
            "STAGE": lambda stage: stage.stage_id.hex(),
            "SEALED": "sealed",
            "ROWS": "rows",
            "BYTES": "payload_bytes",
            "AGE": _age,
            "TASK": "label",
        },
        as_json=False,
    )


@batch.command()
@click.argument("writer")
@click.argument("batch_id", metavar="BATCH", type=click.IntRange(0))
@click.option(
    "--force",
    is_flag=True,
    help="Drop the batch although a task is writing to it, or it was prepared for several brokers,"
    " one of which may have committed it.",
)
@connected
def drop(target: Target, *, writer: str, batch_id: int, force: bool) -> None:
    """Drop the staged rows of the batch BATCH of WRITER, and free the room that they took up.

    Use it for a write that is dead. The commit of a live write is refused, and none of its rows
    becomes visible: a query fails and runs the batch again at its next start, a batch write fails.
    """
    with target.admin() as admin:
        done = admin.drop_batch(writer, batch_id, force=force)
    target.answer(
        {"writer": writer, "batch_id": batch_id, **as_dict(done)},
        f"batch {batch_id} of writer '{writer}' dropped: stages={done.stages} rows={done.rows}"
        f" bytes={done.payload_bytes}",
    )


@click.group(cls=Group)
def writer() -> None:
    """Show the writers that the broker remembers; give one to another user; forget one for good."""


@writer.command("list")
@click.option(
    "--idle",
    "idle_ms",
    type=DURATION,
    default=0,
    help="Only writers that were not heard of for this time: 12h, 3d.",
)
@click.option("--user", metavar="NAME", help="Only writers that belong to this user.")
@connected
def list_writers(target: Target, *, idle_ms: int, user: str | None) -> None:
    """List the writers with their last committed batch and the user that owns them."""
    with target.admin() as admin:
        found = admin.writers(idle_s=idle_ms / 1000)
    if user is not None:
        found = [each for each in found if each.user == user]
    print_infos(
        found,
        {
            "WRITER": "writer",
            "BATCH": lambda each: each.batch_id if each.committed else "-",
            "ROWS": "rows",
            "STAGES": "stages",
            "IDLE": _age,
            "USER": _user,
        },
        as_json=target.as_json,
    )


@writer.command()
@click.argument("names", metavar="WRITER...", nargs=-1, required=True)
@click.option(
    "--force", is_flag=True, help="Forget also writers that were heard of within the last day."
)
@connected
def forget(target: Target, *, names: tuple[str, ...], force: bool) -> None:
    """Forget each WRITER: of a query that will not run again, or a txnAppId no longer in use.

    The broker forgets which batch the writer committed last, and refuses every write under its name
    from then on. This cannot be undone: a query that goes on needs a new checkpoint.
    """
    with target.admin() as admin, _Done(target) as done:
        for name in names:
            new = admin.forget_writer(name, force=force)
            text = f"writer '{name}' {'forgotten' if new else 'was forgotten before'}"
            done.add({"writer": name, "forgotten": new}, text)


@writer.command()
@click.argument("names", metavar="WRITER...", nargs=-1, required=True)
@click.option("--to", "user", required=True, metavar="USER", help="The new owner.")
@connected
def assign(target: Target, *, names: tuple[str, ...], user: str) -> None:
    """Give each WRITER to another user of the broker, whose query goes on with its checkpoint.

    A writer belongs to the user that wrote under its name first; no other user may write under it.
    The batches that it has committed and staged stay.
    """
    with target.admin() as admin, _Done(target) as done:
        for name in names:
            was = admin.assign_writer(name, user)
            before = f"user '{was}'" if was else "no user"
            text = f"writer '{name}' given to user '{user}', belonged to {before}"
            done.add({"writer": name, "user": user, "before": was}, text)


class _Done:
    """Prints what was done with each writer, also when a later one is refused.

    People see a line as soon as it is true; programs one document at the end, before the error.
    """

    def __init__(self, target: Target) -> None:
        self._as_json = target.as_json
        self._values: list[dict[str, object]] = []

    def add(self, value: dict[str, object], text: str) -> None:
        """Notes that one is done: `value` for JSON, `text` for people."""
        self._values.append(value)
        if not self._as_json:
            click.echo(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._as_json and self._values:
            print_json(self._values)


def _age(each: BatchInfo | StageInfo | WriterInfo) -> str:
    return age(each.age_ms)


def _user(each: BatchInfo | WriterInfo) -> str:
    return each.user or "-"


def _state(each: BatchInfo) -> str:
    """State of a batch: committed before, written to, prepared (K14), or awaiting its commit."""
    if each.committed:
        return "repeated"
    if each.edges:
        return "prepared"
    return "open" if each.open_stages else "sealed"


def _targets(each: BatchInfo) -> list[str]:
    """The queues of a batch, deleted ones in parentheses."""
    names = [f"({to.queue or 'deleted'})" if to.deleted else to.queue for to in each.targets]
    more = each.target_count - len(names)
    return [*names, f"{more} more"] if more else names
