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
    "connection": ("cut", " and is not connected to it"),
    "alarm": ("blocked", ", which blocks publishers now"),
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
            f"{duration(link.held_oldest_age_ms)}: they are acknowledged at the remote broker "
            "when they are settled at this one.",
        )
    if link.in_doubt:
        yield Finding(
            "link-in-doubt",
            Severity.NOTE,
            f"{name} has {count(link.in_doubt, 'acknowledgement')} of broken connections in doubt:"
            " if the remote broker delivers such a message again, it is matched and acknowledged"
            " again.",
        )


def outbound_held_up(link: OutboundReport) -> Iterator[Finding]:
    """A warning if something keeps an outbound link from publishing, a note if something did."""
    code, state = _OUTBOUND.get(link.limited_by, ("limited", f" and waits: {link.limited_by}"))
    unfit = f"{count(link.unfit, 'message')} that can never be published"
    counts = f"{count(link.refused, 'refusal')}, {unfit}"
    words = f"; the last reason: {link.reason.rstrip('.')}" if link.reason else ""
    if link.refused or link.unfit or link.cuts or link.limited_by:
        yield Finding(
            f"link-out-{code}",
            Severity.WARNING if link.limited_by else Severity.NOTE,
            f"The link '{link.link}' publishes queue '{link.queue}' to {link.target}{state}. Since"
            f" it started it had {counts}, {count(link.cuts, 'cut')}{words}.",
            "A message that can never be published becomes a dead letter; without a dead-letter"
            " queue it stays in its queue and is tried again."
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
            f"{name} brings no messages from {link.source}: no process runs it{last}. The messages "
            "that it holds are delivered again when it starts, and are matched.",
            "Start `ackq-broker link` with this link.",
        )
    if link.paused:
        yield Finding(
            "link-paused",
            Severity.NOTE,
            f"{name} takes no messages, because an operator paused it"
            + ("." if is_cut(link) else "; it still acknowledges."),
            f"To resume it: ackq link resume {argument(link.link)}",
        )


def is_cut(link: LinkInfo) -> bool:
    """Whether the link's process has no connection to the remote broker."""
    return link.report.limited_by == "connection"


def _flow(link: LinkInfo, name: str) -> Iterator[Finding]:
    window = link.report.window_messages
    if link.refusal:
        yield Finding(
            "link-refused",
            Severity.WARNING,
            f"{name} waits, because this broker takes no messages from it; {link.source} keeps the "
            f"rest. {link.refusal}",
            f"See why its queue stands still: ackq why {argument(link.queue)}",
        )
    if window and link.held >= window:
        yield Finding(
            "link-window-full",
            Severity.WARNING,
            f"{name} takes no more messages: it holds {count(link.held, 'message')}, and its "
            f"window is {window:,}. They wait for the reader of the queue.",
            f"See why its queue stands still: ackq why {argument(link.queue)}",
        )
    elif is_cut(link):
        yield Finding(
            "link-cut",
            Severity.WARNING,
            f"{name} is not connected to {link.source}, and acknowledges nothing"
            + (" while it is paused." if link.paused else "; it tries again."),
            "" if link.paused else "The link's log says why.",
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
            "The link's log says what was done with the message.",
        )
    lives = link.report.lives_left
    if lives is not None:
        yield Finding(
            "link-lives",
            Severity.WARNING if lives <= _FEW_LIVES else Severity.NOTE,
            f"{name} holds a message that {link.source} may deliver {count(lives, 'more time')}"
            " before it drops or dead-letters it; each cut uses up one delivery.",
            "Raise the delivery limit at the remote broker." if lives <= _FEW_LIVES else "",
        )
