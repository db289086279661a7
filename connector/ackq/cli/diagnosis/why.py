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
from ackq.errors import (
    PermissionDeniedError,
    QueueNotFoundError,
    SessionNotFoundError,
    UnsupportedError,
)
from ackq.info import BatchInfo, LinkInfo, OutboundReport, QueueInfo, SessionInfo
from ackq.text import printable

L = TypeVar("L", LinkInfo, OutboundReport)

# With more sessions than this the broker's list of all is read, instead of each by its name.
_NAMED_SESSIONS = 50


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
    except QueueNotFoundError:
        return facts
    denied: set[str] = set()
    holding = {each.session for each in holdings.holdings if each.session}
    names = {*queue.sessions, *holding}
    return replace(
        facts,
        queue=queue,
        holdings=holdings,
        sessions=_sessions(admin, names, holding),
        batches=_batches(admin, queue, denied),
        dead_letters=_dead_letters(admin, queue, denied),
        denied=frozenset(denied),
        sources=tuple(
            each.queue for each in admin.queues() if each.properties.dead_letter_queue == name
        )
        if queue.ready and not names
        else (),
        links=_links(admin.links, name),
        outbound=_links(admin.outbound_links, name),
    )


def _sessions(admin: Admin, names: set[str], holding: set[str]) -> dict[str, SessionInfo]:
    """The sessions that the user may see: those that hold messages, then the live ones."""
    if len(names) > _NAMED_SESSIONS:
        found = [each for each in admin.sessions(finished=True) if each.session in names]
    else:
        found = [each for name in names for each in _session(admin, name)]
    found.sort(key=lambda each: (each.session not in holding, not each.live, each.session))
    return {each.session: each for each in found}


def _session(admin: Admin, name: str) -> list[SessionInfo]:
    try:
        return [admin.session(name)]
    except SessionNotFoundError:
        return []  # it ended meanwhile, or the user may not see it


def _batches(admin: Admin, queue: QueueInfo, denied: set[str]) -> tuple[BatchInfo, ...]:
    try:
        return tuple(admin.batches(queue.queue)) if queue.staged else ()
    except QueueNotFoundError:
        return ()
    except PermissionDeniedError:
        denied.add("batches")
        return ()


def _links(listed: Callable[[], list[L]], queue: str) -> tuple[L, ...]:
    try:
        return tuple(each for each in listed() if each.queue == queue)
    except UnsupportedError:
        return ()  # an older broker


def _dead_letters(admin: Admin, queue: QueueInfo, denied: set[str]) -> QueueInfo | None:
    target = queue.properties.dead_letter_queue
    try:
        return admin.queue(target) if target else None
    except QueueNotFoundError:
        return None
    except PermissionDeniedError:
        denied.add("dead_letters")
        return None
