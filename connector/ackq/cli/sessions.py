"""`ackq session`: shows sessions and their leases, settles and releases them (S5, S8, S9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import (
    age,
    as_dict,
    plain_row,
    preview,
    print_fields,
    print_infos,
    print_json,
    print_table,
)
from ackq.cli.parameters import Instant, confirm, yes_option
from ackq.diagnosis.wording import count
from ackq.errors import AlreadyHeldError, SessionNotFoundError
from ackq.outcomes import Outcome
from ackq.units import MOST

if TYPE_CHECKING:
    from ackq.client import Admin
    from ackq.info import SessionInfo, SettledSession

_RANGE: Final = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_DELETED: Final = "as the queue was deleted"
_FENCE: Final = "End the live reader of the session, if there is one, instead of refusing."

_INCARNATION: Final = (
    "Refuse unless the session still has this incarnation, which `ackq session show` prints: the"
    " tags of a session that was opened again begin at 1 again."
)

Tags = tuple[tuple[int, int], ...]


def _tags(_: click.Context, __: click.Parameter, value: str | None) -> Tags | None:
    """Parses tags such as `5,7-9` into ascending ranges without overlap, both ends included."""
    if value is None:
        return None
    ranges = []
    for part in value.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise click.BadParameter(f"'{part}' is not a tag or a range of tags; write 5,7-9.")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= MOST:
            raise click.BadParameter(
                f"there are no tags '{part.strip()}'; tags begin at 1, ranges with the lower tag."
            )
        ranges.append((first, last))
    return tuple(_joined(sorted(ranges)))


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Joins sorted ranges that overlap or touch."""
    first, last = ranges[0]
    for begin, end in ranges[1:]:
        if begin > last + 1:
            yield first, last
            first, last = begin, end
        last = max(last, end)
    yield first, last


def _state(each: SessionInfo) -> str:
    """The state of a session's holder: live, absent, or detached by the session timeout (S5)."""
    if each.detached:
        return "detached"
    return "live" if each.live else "absent"


_COLUMNS: Final[dict[str, str | Callable[[SessionInfo], object]]] = {
    "SESSION": "session",
    "QUEUES": lambda each: each.queue_pattern or list(each.queues),
    "LEASED": "leased",
    "TAGS": lambda each: f"({each.floor_tag}, {each.end_tag}]",
    "HOLES": "holes",
    "SETTLED": "settled",
    "LEASE AGE": lambda each: age(each.lease_age_ms),
    "STATE": _state,
    "HOLDER": lambda each: f"{each.holder.host}:{each.holder.pid}" if each.holder.host else "-",
    "BATCH": lambda each: each.batch_id if each.query_id else "-",
    "ATTACHES": "attaches",
}


@click.group(cls=Group)
def session() -> None:
    """Show the sessions of readers such as Spark queries, and free what they hold."""


@session.command("list")
@click.option(
    "--all",
    "finished",
    is_flag=True,
    help="List also finished sessions of queries without the option `session`.",
)
@connected
def list_sessions(target: Target, *, finished: bool) -> None:
    """List the sessions.

    A session of a query without the option `session` is left out a day after its end if it holds
    no messages; the query can still go on with its checkpoint.
    """
    with target.admin() as admin:
        found = admin.sessions(finished=finished)
    print_infos(found, _COLUMNS, as_json=target.as_json)


@session.command()
@click.argument("name")
@connected
def show(target: Target, *, name: str) -> None:
    """Show the session NAME: who holds it, and what it has leased."""
    with target.admin() as admin:
        fields = as_dict(admin.session(name))
    if target.as_json:
        print_json(fields)
        return
    holder = fields.pop("holder")
    print_fields({**fields, **{f"holder_{key}": value for key, value in holder.items()}})


@session.command()
@click.argument("name")
@click.option(
    "--tags",
    metavar="TAGS",
    callback=_tags,
    help="Only messages with these delivery tags, for instance 5,7-9.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, MOST),
    default=100,
    show_default=True,
    help="Maximum number of messages.",
)
@connected
def lease(target: Target, *, name: str, tags: Tags | None, limit: int) -> None:
    """Show the messages that the session NAME has leased, without touching them.

    Missing tags are holes: the message was settled, or left the lease while the session had no
    reader.
    """
    with target.admin() as admin:
        rows = list(islice(_leased(admin, name, tags or ((0, 0),), limit), limit))
    if target.as_json:
        print_json([plain_row(row) for row in rows])
        return
    print_table(
        ("TAG", "QUEUE", "DELIVERIES", "ROUTING KEY", "MESSAGE ID", "BODY"),
        (
            (
                row["delivery_tag"],
                row["queue"],
                row["delivery_count"],
                row["routing_key"],
                row["message_id"] or "",
                preview(row["body"]),
            )
            for row in rows
        ),
    )


@session.command()
@click.argument("name")
@click.option(
    "--tags",
    metavar="TAGS",
    callback=_tags,
    required=True,
    help="Delivery tags of the messages, for instance 5,7-9.",
)
@click.option("--reason", default="", help="Reason of the rejection, which dead letters carry.")
@click.option("--fence", is_flag=True, help=_FENCE)
@click.option(
    "--discard", is_flag=True, help="Drop the messages of queues that have no dead-letter queue."
)
@click.option("--incarnation", default="", help=_INCARNATION)
@connected
def reject(
    target: Target,
    *,
    name: str,
    tags: Tags,
    reason: str,
    fence: bool,
    discard: bool,
    incarnation: str,
) -> None:
    """Move messages that the session NAME has leased to their dead-letter queue.

    The query that reads the session stays as it is: its next start runs the same batch again
    without these messages. `ackq session lease NAME` shows them with their tags.
    """
    with target.admin() as admin:
        done = admin.settle_session(
            name,
            Outcome.REJECTED,
            tags,
            reason=reason,
            fence=fence,
            discard=discard,
            incarnation=incarnation,
        )
    _print_settled(target, name, Outcome.REJECTED, done)


@session.command()
@click.argument("name", required=False)
@click.option(
    "--tags",
    metavar="TAGS",
    callback=_tags,
    help="Put back only messages with these delivery tags, for instance 5,7-9; the session and its"
    " query go on.",
)
@click.option("--fence", is_flag=True, help=_FENCE)
@click.option("--incarnation", default="", help=f"With --tags: {_INCARNATION}")
@click.option(
    "--finished",
    is_flag=True,
    help="Release all finished sessions, in place of NAME; asks for confirmation.",
)
@click.option("--dry-run", is_flag=True, help="With --finished: only list the sessions.")
@yes_option
@connected
def release(
    target: Target, *, name: str | None, finished: bool, dry_run: bool, yes: bool, **settling: Any
) -> None:
    """Put what the session NAME has leased back into its queues; without --tags, end the session.

    The messages are delivered again, to the next reader. If the query's sink already has them, a
    new checkpoint writes them twice: first let the query run with its old checkpoint until the
    session holds nothing. Without --tags, release only a session that no query will resume: what it
    retains can then no longer be read, or rewound.

    A finished session is one of a query without the option `session` that holds no messages and
    whose query was last heard of over a day ago. A query that comes back with its checkpoint after
    the release is refused; one that comes back before it keeps its session.
    """
    of_one = name or any(settling.values())
    if of_one if finished else not name or dry_run or yes:
        raise click.UsageError("Give NAME; or give --finished alone, or with --dry-run or --yes.")
    if settling["incarnation"] and settling["tags"] is None:
        raise click.UsageError("--incarnation needs --tags.")
    with target.admin() as admin:
        if name is None:
            _release_finished(target, admin, dry_run=dry_run, yes=yes)
        elif settling["tags"] is not None:
            done = admin.settle_session(name, Outcome.RELEASED, settling.pop("tags"), **settling)
            _print_settled(target, name, Outcome.RELEASED, done)
        else:
            back = admin.release_session(name, fence=settling["fence"])
            lost = f", {back.dropped} dropped {_DELETED}" if back.dropped else ""
            messages = count(back.released, "message")
            text = f"session '{name}' released: {messages} put back{lost}"
            target.answer({"session": name, **as_dict(back)}, text)


@session.command()
@click.argument("name")
@click.option("--to-batch", type=click.IntRange(0, MOST), help="Read this batch and later ones.")
@click.option(
    "--to-time",
    metavar="TIME",
    type=Instant(),
    help="Read the batches accepted from this time on, for instance 2026-11-24T18:00Z.",
)
@click.option("--earliest", is_flag=True, help="Read all that is retained.")
@click.option(
    "--with-rejected", is_flag=True, help="Read rejected messages, too; they stay dead letters."
)
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@connected
def rewind(
    target: Target,
    *,
    name: str,
    to_batch: int | None,
    to_time: int | None,
    earliest: bool,
    with_rejected: bool,
    dry_run: bool,
) -> None:
    """Let the query of the session NAME read again what it accepted.

    The messages are ready again, before newer ones of their queues; the query reads them in new
    batches, with the header `ackq-rewound`. Only what the options `retain` and `retainBytes` of the
    query kept can be read again. The query must have accepted its last batch; an idle one need not
    stop.
    """
    if (to_batch is not None) + (to_time is not None) + earliest != 1:
        raise click.UsageError("Give one of --to-batch, --to-time and --earliest.")
    with target.admin() as admin:
        found = admin.rewind_session(
            name,
            batch=to_batch,
            from_us=to_time or 0,
            with_rejected=with_rejected,
            dry_run=dry_run,
        )
    done = "would be ready again" if dry_run else "ready again"
    since = f", from batch {found.first_batch} on" if found.first_batch >= 0 else ""
    text = f"session '{name}': {count(found.messages, 'message')} {done}{since}"
    if not found.batches:
        text = f"session '{name}': no batch was accepted from there on"
    target.answer({"session": name, **as_dict(found)}, text)


def _release_finished(target: Target, admin: Admin, *, dry_run: bool, yes: bool) -> None:
    """Releases the finished sessions, or with `dry_run` only lists them."""
    # In this order: a session that a query resumes between the two calls is not finished.
    every, others = admin.sessions(finished=True), {each.session for each in admin.sessions()}
    found = [each for each in every if each.session not in others]
    if not dry_run and found:
        sessions = count(len(found), "finished session")
        confirm(
            f"Release {sessions}? A query that comes back with its checkpoint is refused then.",
            yes=yes,
        )
        _release_each(target, admin, found)
        return
    _print_finished(target, found, released=not dry_run)


def _release_each(target: Target, admin: Admin, found: list[SessionInfo]) -> None:
    """Releases finished sessions; prints those that it released, also after an error."""
    gone: list[SessionInfo] = []
    failed = True
    try:
        for each in found:
            if _release_idle(admin, each):
                gone.append(each)  # noqa: PERF401 - what is done before an error counts
        failed = False
    finally:
        if gone or not failed:
            _print_finished(target, gone, released=True)


def _print_finished(target: Target, found: list[SessionInfo], *, released: bool) -> None:
    if target.as_json:
        print_json({"sessions": [each.session for each in found], "released": released})
        return
    if found:
        cells = ((each.session, list(each.queues), each.query_id) for each in found)
        print_table(("SESSION", "QUEUES", "QUERY"), cells)
    done = "released" if released else "to release"
    click.echo(f"{count(len(found), 'finished session')} {done}")


def _release_idle(admin: Admin, was: SessionInfo) -> bool:
    """Releases a session that is unchanged since `was`; False: its query came back, or it ended."""
    with suppress(SessionNotFoundError, AlreadyHeldError):
        now = admin.session(was.session)
        if (now.incarnation, now.epoch, now.end_tag) == (was.incarnation, was.epoch, was.end_tag):
            admin.release_session(was.session)
            return True
    return False


def _leased(admin: Admin, name: str, tags: Tags, limit: int) -> Iterator[dict[str, Any]]:
    """The leased messages of a session in ranges of tags."""
    for first, last in tags:
        batches = admin.browse_lease(name, first_tag=first, last_tag=last, max_messages=limit)
        for batch in batches:
            yield from batch.to_pylist()


def _print_settled(target: Target, name: str, outcome: Outcome, done: SettledSession) -> None:
    messages = count(done.settled, "message")
    dead = f", {done.dead_lettered} to a dead-letter queue" if done.dead_lettered else ""
    why = f" {_DELETED}" if outcome is Outcome.RELEASED else ""
    lost = f", {done.dropped} dropped{why}" if done.dropped else ""
    text = f"session '{name}': {messages} {outcome.value}{dead}{lost}"
    target.answer({"session": name, "outcome": outcome.value, **as_dict(done)}, text)
