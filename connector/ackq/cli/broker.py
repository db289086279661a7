"""`ackq broker`: decisions of an operator about the broker as a whole (Q8, O5, O6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import as_dict
from ackq.cli.parameters import DURATION
from ackq.errors import PreconditionFailedError

if TYPE_CHECKING:
    from ackq.info import Drain

_POLL_S: Final = 0.5


@click.group(cls=Group)
def broker() -> None:
    """Back up and drain the broker, and accept its history after a restore or repair."""


@broker.command("accept-history")
@connected
def accept_history(target: Target) -> None:
    """Let publishers, sessions, writers and links from before a restore or repair go on.

    The broker refuses these clients, because the journal that it serves now may lack messages that
    were confirmed to them, and batches that were accepted or committed. `ackq info` shows how many
    clients are refused, and why the history changed.
    """
    with target.admin() as admin:
        accepted = admin.accept_history()
    target.answer(
        as_dict(accepted),
        f"history {accepted.history_id} accepted: publishers={accepted.publishers}"
        f" sessions={accepted.sessions} writers={accepted.writers} links={accepted.links}"
        " may go on",
    )


@broker.command()
@click.argument("name", default="")
@connected
def backup(target: Target, name: str) -> None:
    """Make a backup of the broker, on its machine, while it serves.

    The backup is the directory NAME (default: the current time) in the directory that `ackq-broker
    serve --backup-dir` names. It contains everything that was confirmed before the command. To
    restore it, stop the broker and put a copy of the backup in place of its data directory.
    """
    with target.admin() as admin:
        made = admin.backup(name)
    target.answer(
        as_dict(made),
        f"backup {made.directory} up to record {made.sequence}: {made.total_bytes} bytes,"
        f" {made.copied_bytes} of them written",
    )


@broker.command()
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default=0,
    help="Maximum time to wait until no work is in flight, such as 30s.",
)
@click.option("--resume", is_flag=True, help="End the drain: take in new work again.")
@connected
def drain(target: Target, *, wait_ms: int, resume: bool) -> None:
    """Make the broker take in no new work, before a restart. A drain lasts until the restart.

    Publishers are blocked, consumers get no more messages, and no batch begins: the clients wait
    and retry. Work in flight is finished; its counts are printed. Exit status 1 while there is any.
    """
    with target.admin() as admin:
        deadline = time.monotonic() + wait_ms / 1000
        found = admin.drain(resume=resume)
        while not (quiet := _quiet(found)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            found = admin.drain(look=True)
            if not (found.draining or resume):
                raise PreconditionFailedError("The drain was ended: the broker was resumed.")
    left = (
        f"{'quiet' if quiet else 'under way'}: unacked={found.unacked}"
        f" transactions={found.transactions} stages={found.stages} bytes={found.bytes}"
    )
    target.answer(as_dict(found), "the broker takes in new work again" if resume else left)
    if not (quiet or resume):
        raise SystemExit(1)


def _quiet(found: Drain) -> bool:
    return not (found.unacked or found.transactions or found.stages or found.bytes)
