"""`ackq link`: shows all links; pauses, drains and removes inbound ones (L25, L26)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from ackq.cli.context import Group, Target, connected
from ackq.cli.output import age, as_dict, print_fields, print_json, print_table, say
from ackq.cli.parameters import DURATION
from ackq.diagnosis.link_state import is_cut, outbound_sentences, sentences
from ackq.diagnosis.wording import count
from ackq.errors import LinkNotFoundError, PermissionDeniedError, PreconditionFailedError
from ackq.text import printable

if TYPE_CHECKING:
    from ackq.client import Admin
    from ackq.info import LinkInfo

_POLL_S: Final = 0.5
_SAY_S: Final = 5.0
# A drain gives up after so many looks in a row, 10 s, at a link that is not connected: one that has
# just connected says so with its next sign of life, within 5 s.
_LOOKS: Final = 20
_COLUMNS: Final = (
    *("LINK", "SOURCE", "QUEUE", "ACK", "STATE", "HELD", "OLDEST", "UNPROVEN", "IN DOUBT"),
    *("TAKEN", "MATCHED", "PERMITTED", "HOLDER"),
)
# Cells of an outbound link between its state and its holder: it has other figures, see `show`.
_NO_FIGURES: Final = ("-",) * 7


@click.group(cls=Group)
def link() -> None:
    """Show the links with remote brokers; pause, drain and remove inbound links."""


@link.command("list")
@connected
def list_links(target: Target) -> None:
    """List the links."""
    with target.admin() as admin:
        found, outbound = admin.links(), admin.outbound_links()
    if target.as_json:
        inbound = [{**as_dict(each), "direction": "in"} for each in found]
        print_json(inbound + [{**as_dict(each), "direction": "out"} for each in outbound])
        return
    rows: list[tuple[object, ...]] = [
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
    ]
    for each in outbound:
        what = each.link, f"to {each.target}", each.queue, "-", each.limited_by or "live"
        rows.append((*what, *_NO_FIGURES, f"{each.holder.host}:{each.holder.pid}"))
    print_table(_COLUMNS, rows)


@link.command()
@click.argument("name")
@connected
def show(target: Target, *, name: str) -> None:
    """Show the link NAME: its counts, who runs it, and what holds it up."""
    with target.admin() as admin:
        outbound = admin.outbound_links(name)
        found = []
        with suppress(LinkNotFoundError):  # no inbound link has this name
            found.append(admin.link(name))
    reasons = [*chain(*map(sentences, found), *map(outbound_sentences, outbound))]
    if target.as_json:
        inbound = as_dict(found[0]) if found else {"link": name}
        processes = [as_dict(each) for each in outbound]
        print_json({**inbound, "outbound": processes, "held_up": reasons})
        return
    for fields in [*map(as_dict, found), *map(as_dict, outbound)]:
        holder, report = fields.pop("holder"), fields.pop("report", {})
        print_fields(
            {
                **fields,
                **{f"holder_{key}": value for key, value in holder.items()},
                **{f"report_{key}": value for key, value in report.items()},
            }
        )
        click.echo()
    for reason in reasons or ["Nothing holds the link up."]:
        click.echo(printable(reason))


@link.command()
@click.argument("name")
@connected
def pause(target: Target, *, name: str) -> None:
    """Pause the link NAME: it takes no more messages, but still acknowledges settled ones."""
    _pause(target, name, paused=True)


@link.command()
@click.argument("name")
@connected
def resume(target: Target, *, name: str) -> None:
    """Resume the paused link NAME."""
    _pause(target, name, paused=False)


@link.command()
@click.argument("name")
@click.option("--timeout", type=DURATION, help="Maximum time to wait; default: no limit.")
@connected
def drain(target: Target, *, name: str, timeout: int | None) -> None:
    """Pause the link NAME, and wait until none of its messages is held.

    A message is held until the reader of its queue has settled it; with ack=stored none is, and
    messages may be left in the queue that only this broker has. The link stays paused; the remote
    broker keeps the messages that it has not delivered.
    """
    with target.admin() as admin:
        with _of_inbound(admin, name):
            admin.pause_link(name)
        found = _drained(lambda: admin.link(name), timeout, as_json=target.as_json)
    unproven = count(found.unproven, "acknowledgement")
    target.answer(
        {"link": name, "paused": True, "held": 0, "unproven": found.unproven},
        f"link '{name}' is drained and paused: {unproven} not proven",
    )


@link.command()
@click.argument("name")
@click.option(
    "--forget",
    is_flag=True,
    help="Remove the link although it holds messages or acknowledgements are not proven; messages"
    " that the remote broker delivers again are then stored as new ones.",
)
@connected
def remove(target: Target, *, name: str, forget: bool) -> None:
    """Remove the link NAME, which no process may be running. Its messages stay in their queue."""
    with target.admin() as admin, _of_inbound(admin, name):
        done = admin.remove_link(name, forget=forget)
    again = done.held + done.unproven
    doubled = f"; {count(again, 'message')} may be delivered again as new ones" if again else ""
    target.answer({"link": name, **as_dict(done)}, f"link '{name}' removed{doubled}")


def _drained(look: Callable[[], LinkInfo], timeout_ms: int | None, *, as_json: bool) -> LinkInfo:
    """Waits until the link holds nothing, and returns it; prints progress from time to time.

    Raises:
        PreconditionFailedError: It still held messages at the timeout, or it cannot acknowledge.
    """
    began_s = said_s = time.monotonic()
    unconnected = 0  # looks in a row
    while True:
        found = look()
        held = found.held + found.settled
        acknowledges = found.live and not is_cut(found)
        if acknowledges and not held:
            return found
        now_s = time.monotonic()
        timed_out = timeout_ms is not None and now_s >= began_s + timeout_ms / 1000
        unconnected = 0 if acknowledges else unconnected + 1
        if unconnected >= _LOOKS or (unconnected and timed_out):
            why = "is not connected to the remote broker" if found.live else "has no process"
            remedy = "Resume it" if found.live else "Start it, resume it"
            raise PreconditionFailedError(
                f"The link '{found.link}' is paused, and acknowledges nothing: it {why}. {remedy},"
                " and drain it again. Do not remove it before: what was settled since it was cut"
                " would come again as new.",
                link=found.link,
                held=found.held,
            )
        if timeout_ms is not None and timed_out:
            raise PreconditionFailedError(
                f"The link '{found.link}' still holds {count(held, 'message')} after"
                f" {timeout_ms / 1000:g} s, and stays paused. See `ackq link show {found.link}`.",
                link=found.link,
                held=found.held,
            )
        if now_s >= said_s + _SAY_S:
            said_s = now_s
            text = (
                f"link '{found.link}': {found.held} held, the oldest for"
                f" {age(found.held_oldest_age_ms)}"
            )
            say(text, {"link": found.link, "held": found.held}, as_json=as_json)
        time.sleep(_POLL_S)


@contextmanager
def _of_inbound(admin: Admin, name: str) -> Iterator[None]:
    """Explains the error of a missing or forbidden link if an outbound link has the name."""
    try:
        yield
    except (LinkNotFoundError, PermissionDeniedError) as error:
        try:
            (*_, link) = admin.outbound_links(name)
        except (LinkNotFoundError, ValueError):
            raise error from None
        raise PreconditionFailedError(
            f"The link '{name}' is outbound, and this command is for inbound links. An outbound"
            " link runs as long as its process; stop the process with Ctrl-C or SIGTERM:"
            f" {link.holder.host} ({link.holder.pid}).",
            link=name,
        ) from None


def _pause(target: Target, name: str, *, paused: bool) -> None:
    with target.admin() as admin, _of_inbound(admin, name):
        changed = admin.pause_link(name, paused=paused)
    state = "paused" if paused else "not paused"
    text = f"link '{name}' is {state}{'' if changed else ', as before'}"
    target.answer({"link": name, "paused": paused, "changed": changed}, text)


def _state(link: LinkInfo) -> str:
    """State of an inbound link in a word: absent, paused, refused or live."""
    if not link.live:
        return "absent"
    if link.paused:
        return "paused"
    return "refused" if link.refusal else "live"
