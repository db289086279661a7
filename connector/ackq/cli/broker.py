"""`ackq broker`: decisions of an operator about the broker as a whole (Q8)."""

from __future__ import annotations

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import as_dict, print_json


@click.group(cls=Group)
def broker() -> None:
    """Decide for the broker as a whole."""


@broker.command("accept-history")
@connected
def accept_history(target: Target) -> None:
    """Let publishers, sessions and writers from before a restore or repair go on.

    The broker refuses them, because the journal that it serves now may lack what it had answered
    for: messages that were confirmed, batches that were accepted or committed. `ackq info` shows
    how many they are, and why the history changed.
    """
    with target.admin() as admin:
        accepted = admin.accept_history()
    if target.as_json:
        print_json(as_dict(accepted))
    else:
        click.echo(
            f"history {accepted.history_id} accepted: publishers={accepted.publishers}"
            f" sessions={accepted.sessions} writers={accepted.writers} may go on"
        )
