"""Findings about a link with a remote broker: one for each state that the link is in (L26).

Invariant: pure; the same facts give the same findings. Each state has one code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ackq.diagnosis.finding import Finding, Severity, ordered
from ackq.diagnosis.wording import argument, count, duration

if TYPE_CHECKING:
    from ackq.info import LinkInfo, OutboundReport

_FEW_LIVES: Final = 5
# By the reason for which an outbound link waits: the code of the finding, and the link's state.
_OUTBOUND: Final = {
    "": ("works", ""),
    "connection": ("cut", " and is not connected there"),
    "alarm": ("blocked", ", which takes nothing now"),
    "refusals": ("refused", ", which refuses some of its messages"),
}


def held_up(link: LinkInfo) -> Iterator[Finding]:
    """Findings about an inbound link; none while it runs unhindered and holds nothing."""
    name = f"The link '{link.link}'"
    yield from _process(link, name)
    yield from _flow(link, name)
    if link.held:
        yield Finding(
            "link-holds",
            Severity.NOTE,
            f"{name} holds {count(link.held, 'message')}, the oldest for "
            f"{duration(link.held_oldest_age_ms)}: they are acknowledged at the other broker when "
            "they are settled here.",
        )
    if link.in_doubt:
        yield Finding(
            "link-in-doubt",
            Severity.NOTE,
            f"{name} has {count(link.in_doubt, 'acknowledgement')} of broken connections in doubt:"
            " what the other broker delivers again of these is matched, and acknowledged again.",
        )


def outbound_held_up(link: OutboundReport) -> Iterator[Finding]:
    """A warning if something keeps an outbound link from publishing, a note if something did."""
    code, state = _OUTBOUND.get(link.limited_by, ("limited", f" and waits: {link.limited_by}"))
    counts = f"{count(link.refused, 'refusal')}, {count(link.unfit, 'message')} that can never go"
    words = f"; the last reason: {link.reason.rstrip('.')}" if link.reason else ""
    if link.refused or link.unfit or link.cuts or link.limited_by:
        yield Finding(
            f"link-out-{code}",
            Severity.WARNING if link.limited_by else Severity.NOTE,
            f"The link '{link.link}' publishes queue '{link.queue}' to {link.target}{state}. Since"
            f" it started it had {counts} out, {count(link.cuts, 'cut')}{words}.",
            "What can never go out leaves the queue if that has a dead-letter queue."
            if link.unfit
            else "",
        )


def sentences(link: LinkInfo) -> list[str]:
    """The findings about an inbound link as sentences with their remedies, the worst first."""
    return _said(held_up(link))


def outbound_sentences(link: OutboundReport) -> list[str]:
    """The findings about an outbound link as sentences with their remedies."""
    return _said(outbound_held_up(link))


def _said(findings: Iterator[Finding]) -> list[str]:
    return [f"{each.sentence} {each.remedy}".rstrip() for each in ordered(findings)]


def _process(link: LinkInfo, name: str) -> Iterator[Finding]:
    if not link.live:
        last = f"; the last was {link.holder.host} ({link.holder.pid})" if link.holder.host else ""
        yield Finding(
            "link-absent",
            Severity.WARNING,
            f"{name} brings nothing from {link.source}: nobody runs it{last}. What it holds is "
            "delivered again when it starts, and matched.",
            "Start `ackq-broker link` with it.",
        )
    if link.paused:
        yield Finding(
            "link-paused",
            Severity.NOTE,
            f"{name} takes nothing, because an operator paused it; it goes on to acknowledge.",
            f"When that shall end: ackq link resume {argument(link.link)}",
        )


def _flow(link: LinkInfo, name: str) -> Iterator[Finding]:
    window = link.report.window_messages
    if link.refusal:
        yield Finding(
            "link-refused",
            Severity.WARNING,
            f"{name} waits, and {link.source} keeps the rest: this broker takes nothing from it. "
            f"{link.refusal}",
            f"See what its queue waits for: ackq why {argument(link.queue)}",
        )
    if window and link.held >= window:
        yield Finding(
            "link-window-full",
            Severity.WARNING,
            f"{name} takes nothing more: it holds {count(link.held, 'message')}, and {window:,} is "
            "its window. They wait for whoever reads the queue.",
            f"ackq why {argument(link.queue)}",
        )
    elif link.report.limited_by:
        yield Finding(
            "link-limited", Severity.NOTE, f"{name} is limited by its {link.report.limited_by}."
        )
    if link.report.set_aside:
        yield Finding(
            "link-set-aside",
            Severity.WARNING,
            f"{name} cannot bring a message of {link.source}: {link.report.set_aside_reason}.",
            "The link's log says what became of it.",
        )
    lives = link.report.lives_left
    if lives is not None:
        yield Finding(
            "link-lives",
            Severity.WARNING if lives <= _FEW_LIVES else Severity.NOTE,
            f"{name} holds a message that {link.source} may deliver {count(lives, 'more time')}"
            " before it drops or dead-letters it; each cut is one of these.",
            "Raise the delivery limit there." if lives <= _FEW_LIVES else "",
        )
