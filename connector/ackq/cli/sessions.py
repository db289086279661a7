"""`ackq session`: shows the sessions of readers and releases what they hold (S5, S8, S9)."""

from __future__ import annotations

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import age, as_dict, print_fields, print_json, print_table


@click.group(cls=Group)
def session() -> None:
    """Show and release the sessions of readers such as Spark queries."""


@session.command("list")
@connected
def list_sessions(target: Target) -> None:
    """List the sessions."""
    with target.admin() as admin:
        found = admin.sessions()
    if target.as_json:
        print_json([as_dict(each) for each in found])
        return
    print_table(
        ("SESSION", "QUEUES", "LEASED", "TAGS", "LEASE AGE", "LIVE", "HOLDER", "ATTACHES"),
        (
            (
                each.session,
                list(each.queues),
                each.leased,
                f"({each.floor_tag}, {each.end_tag}]",
                age(each.lease_age_ms),
                each.live,
                f"{each.holder.host}:{each.holder.pid}" if each.holder.host else "-",
                each.attaches,
            )
            for each in found
        ),
    )


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
@click.option("--fence", is_flag=True, help="Also when a live reader holds it: that one is ended.")
@connected
def release(target: Target, *, name: str, fence: bool) -> None:
    """Put the lease of the session NAME back into its queues and end the session.

    Its messages are delivered again, to whoever reads next: release only what no query will resume.
    """
    with target.admin() as admin:
        released = admin.release_session(name, fence=fence)
    if target.as_json:
        print_json({"session": name, "released": released})
    else:
        click.echo(f"session '{name}' released: {released} messages put back")
