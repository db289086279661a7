"""`ackq why`: explains why a queue stands still, who holds its messages, and the remedies (Q9)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import click

from ackq.cli.context import Target, connected
from ackq.cli.diagnosis.findings import print_findings
from ackq.cli.failure import ExitStatus
from ackq.cli.output import print_json
from ackq.client import Admin
from ackq.diagnosis.finding import broken
from ackq.diagnosis.queue_facts import QueueFacts
from ackq.diagnosis.queue_state import diagnose, summary
from ackq.errors import QueueNotFoundError, SessionNotFoundError, UnsupportedError
from ackq.info import LinkInfo, OutboundReport, QueueInfo, SessionInfo
from ackq.text import printable

L = TypeVar("L", LinkInfo, OutboundReport)

_MOST_SESSIONS = 50


@click.command()
@click.argument("name", metavar="QUEUE")
@connected
def why(target: Target, *, name: str) -> None:
    """Say why the queue QUEUE stands still: who holds what, since when, and what to do.

    Exit status 1 if a problem needs action, 3 if the queue does not exist.
    """
    with target.admin() as admin:
        facts = gather(admin, name)
    findings = diagnose(facts)
    if target.as_json:
        print_json(
            {"queue": name, "findings": [each.as_dict() for each in findings]},
        )
    else:
        click.echo(printable(summary(facts)))
        print_findings(findings)
    if broken(findings):
        sys.exit(ExitStatus.FAILED if facts.queue is not None else ExitStatus.NOT_FOUND)


def gather(admin: Admin, name: str) -> QueueFacts:
    """Gathers the facts about a queue by calls that change nothing."""
    facts = QueueFacts(name, admin.info(), serving=admin.serving())
    try:
        queue = admin.queue(name)
        holdings = admin.holdings(name)
        batches = tuple(admin.batches(name)) if queue.staged else ()
    except QueueNotFoundError:
        return facts
    names = {*queue.sessions, *(each.session for each in holdings.holdings if each.session)}
    return replace(
        facts,
        queue=queue,
        holdings=holdings,
        sessions=_sessions(admin, sorted(names)[:_MOST_SESSIONS]),
        batches=batches,
        dead_letters=_dead_letters(admin, queue),
        sources=tuple(
            each.queue for each in admin.queues() if each.properties.dead_letter_queue == name
        )
        if queue.ready and not names
        else (),
        links=_links(admin.links, name),
        outbound=_links(admin.outbound_links, name),
    )


def _sessions(admin: Admin, names: list[str]) -> dict[str, SessionInfo]:
    found = {}
    for name in names:
        try:
            found[name] = admin.session(name)
        except SessionNotFoundError:
            continue  # it ended meanwhile
    return found


def _links(listed: Callable[[], list[L]], queue: str) -> tuple[L, ...]:
    try:
        return tuple(each for each in listed() if each.queue == queue)
    except UnsupportedError:
        return ()  # an older broker


def _dead_letters(admin: Admin, queue: QueueInfo) -> QueueInfo | None:
    target = queue.properties.dead_letter_queue
    try:
        return admin.queue(target) if target else None
    except QueueNotFoundError:
        return None
