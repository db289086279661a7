"""`ackq link`: shows links to other brokers, pauses, drains and removes them (L25, L26)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import age, as_dict, print_fields, print_json, print_table, say
from ackq.cli.parameters import DURATION
from ackq.diagnosis.link_state import sentences
from ackq.diagnosis.wording import count
from ackq.errors import PreconditionFailedError
from ackq.text import printable

if TYPE_CHECKING:
    from ackq.info import LinkInfo

_POLL_S: Final = 0.5
_SAY_S: Final = 5.0
_COLUMNS: Final = (
    *("LINK", "SOURCE", "QUEUE", "ACK", "STATE", "HELD", "OLDEST", "UNPROVEN", "IN DOUBT"),
    *("TAKEN", "MATCHED", "PERMITTED", "HOLDER"),
)


@click.group(cls=Group)
def link() -> None:
    """Show the links that bring messages from other brokers; pause, drain and remove them."""


@link.command("list")
@connected
def list_links(target: Target) -> None:
    """List the links."""
    with target.admin() as admin:
        found = admin.links()
    if target.as_json:
        print_json([as_dict(each) for each in found])
        return
    print_table(
        _COLUMNS,
        (
            (
                each.link,
                each.source,
                each.queue,
                as_dict(each)["ack"],
                _state(each),
                each.held,
                age(each.held_oldest_age_ms),
                each.unproven,
                each.in_doubt,
                each.taken,
                each.matched_held + each.matched_settled,
                each.permitted,
                f"{each.holder.host}:{each.holder.pid}" if each.holder.host else "-",
            )
            for each in found
        ),
    )


@link.command()
@click.argument("name")
@connected
def show(target: Target, *, name: str) -> None:
    """Show the link NAME: its counts, who runs it, and what holds it up."""
    with target.admin() as admin:
        found = admin.link(name)
    fields = as_dict(found)
    reasons = sentences(found)
    if target.as_json:
        print_json({**fields, "held_up": reasons})
        return
    holder, report = fields.pop("holder"), fields.pop("report")
    print_fields(
        {
            **fields,
            **{f"holder_{key}": value for key, value in holder.items()},
            **{f"report_{key}": value for key, value in report.items()},
        }
    )
    click.echo()
    for reason in reasons or ["Nothing holds it up."]:
        click.echo(printable(reason))


@link.command()
@click.argument("name")
@connected
def pause(target: Target, *, name: str) -> None:
    """Pause the link NAME: it takes nothing more, and goes on to acknowledge what is settled."""
    _pause(target, name, paused=True)


@link.command()
@click.argument("name")
@connected
def resume(target: Target, *, name: str) -> None:
    """Let the paused link NAME go on."""
    _pause(target, name, paused=False)


@link.command()
@click.argument("name")
@click.option("--timeout", type=DURATION, help="Give up after this time.")
@connected
def drain(target: Target, *, name: str, timeout: int | None) -> None:
    """Pause the link NAME, and wait until none of its messages is held.

    They are held until whoever reads the queue has settled them. The link stays paused; the other
    broker keeps what it has.
    """
    with target.admin() as admin:
        admin.pause_link(name)
        found = _drained(lambda: admin.link(name), timeout, as_json=target.as_json)
    if target.as_json:
        print_json({"link": name, "paused": True, "held": 0, "unproven": found.unproven})
    else:
        unproven = count(found.unproven, "acknowledgement")
        click.echo(f"link '{name}' is drained and paused: {unproven} not proven")


@link.command()
@click.argument("name")
@click.option(
    "--forget",
    is_flag=True,
    help="Though it holds messages, or acknowledgements are not proven: what the other broker"
    " delivers again then, is new here.",
)
@connected
def remove(target: Target, *, name: str, forget: bool) -> None:
    """Remove the link NAME, which nobody runs. Its messages stay in their queue."""
    with target.admin() as admin:
        done = admin.remove_link(name, forget=forget)
    if target.as_json:
        print_json({"link": name, **as_dict(done)})
        return
    again = done.held + done.unproven
    doubled = f"; {count(again, 'message')} may come again as new ones" if again else ""
    click.echo(f"link '{name}' removed{doubled}")


def _drained(look: Callable[[], LinkInfo], timeout_ms: int | None, *, as_json: bool) -> LinkInfo:
    """The link once it holds nothing; says from time to time what it waits for.

    Raises:
        PreconditionFailedError: It held something for too long.
    """
    began_s = said_s = time.monotonic()
    while True:
        found = look()
        if not found.held and not found.settled:
            return found
        now_s = time.monotonic()
        if timeout_ms is not None and now_s >= began_s + timeout_ms / 1000:
            raise PreconditionFailedError(
                f"The link '{found.link}' still holds {found.held + found.settled} messages after"
                f" {timeout_ms / 1000:g} s, and stays paused. {' '.join(sentences(found))}",
                link=found.link,
                held=found.held,
            )
        if now_s >= said_s + _SAY_S:
            said_s = now_s
            text = f"{found.held} held, the oldest for {age(found.held_oldest_age_ms)}"
            say(text, {"link": found.link, "held": found.held}, as_json=as_json)
        time.sleep(_POLL_S)


def _pause(target: Target, name: str, *, paused: bool) -> None:
    with target.admin() as admin:
        changed = admin.pause_link(name, paused=paused)
    if target.as_json:
        print_json({"link": name, "paused": paused, "changed": changed})
        return
    before = "" if changed else ", as before"
    click.echo(f"link '{name}' {'is paused' if paused else 'goes on'}{before}")


def _state(link: LinkInfo) -> str:
    """Paused, live, refused or absent: what an operator looks at first."""
    if not link.live:
        return "absent"
    if link.paused:
        return "paused"
    return "refused" if link.refusal else "live"
