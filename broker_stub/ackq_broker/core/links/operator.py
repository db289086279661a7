"""Operator commands for links: pause, remove, list (L25, L26)."""

from __future__ import annotations

from ackq.errors import InUseError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import plural
from ackq_broker.core.commands import Decision, HolderInfo, LinkInfo, RemovedLink
from ackq_broker.core.holders import holder_text
from ackq_broker.core.links.holder import link_named
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.state import State


def pause(state: State, command: commands.PauseLink, _now_us: int) -> Decision:
    """L25: pauses or resumes a link; a paused link takes no deliveries, but acknowledges."""
    link = link_named(state, command.link)
    if link.paused == command.paused:
        return Decision(reply=False)
    return Decision((records.LinkPaused(link.name, command.paused),), True)


def apply_paused(state: State, _sequence: int, record: records.LinkPaused) -> None:
    """Sets whether a link is paused."""
    state.links[record.link].paused = record.paused


def remove(state: State, command: commands.RemoveLink, _now_us: int) -> Decision:
    """L25: removes a link, unless it runs, or has held or unproven messages without `forget`."""
    link = link_named(state, command.link)
    if command.incumbent_live:
        raise InUseError(
            f"The link '{link.name}' was not removed: it is run by {holder_text(link.holder)}. "
            "Stop that process first.",
            link=link.name,
        )
    held = len(link.held(state.queues[link.queue_id]))
    # Includes messages that are settled locally: their acknowledgement may not have left.
    unproven = len(link.entries) - len(link.proven_entries()) - held
    if (held or unproven) and not command.forget:
        raise InUseError(
            f"The link '{link.name}' was not removed: {plural(held, 'message')} of it "
            f"{'is' if held == 1 else 'are'} not settled and not acknowledged at the remote "
            f"broker, and {plural(unproven, 'acknowledgement')} may not have been applied by "
            f"{link.source}. The remote broker may deliver their messages again, which a new link "
            "would store twice. While it holds messages, run it and `ackq link drain "
            f"{link.name}`. Acknowledgements may stay unproven after that, with RabbitMQ the last "
            "`prefetch`: stop the process, and use --forget.",
            link=link.name,
            held=held,
            unproven=unproven,
        )
    return Decision((records.LinkRemoved(link.name),), RemovedLink(held, unproven))


def apply_removed(state: State, _sequence: int, record: records.LinkRemoved) -> None:
    """Removes a link; its messages stay in the queue."""
    link = state.links.pop(record.link)
    state.queues[link.queue_id].links.discard(link.name)
    state.queues[link.queue_id].use()
    state.link_streams.pop(link.name, None)


def infos(state: State, name: str) -> list[LinkInfo]:
    """Information on all links, by name, or on one of them; raises LinkNotFoundError."""
    found = [link_named(state, name)] if name else [each for _, each in sorted(state.links.items())]
    return [_info(state, link) for link in found]


def _info(state: State, link: Link) -> LinkInfo:
    queue = state.queues[link.queue_id]
    holder, held = link.holder, link.held(queue)
    counts = link.counts
    return LinkInfo(
        link=link.name,
        incarnation=link.incarnation,
        epoch=link.epoch,
        holder=HolderInfo(holder.token, holder.host, holder.pid, holder.application),
        source=link.source,
        queue=queue.name,
        ack=link.ack,
        reject_there=link.reject_there,
        paused=link.paused,
        opened_us=link.opened_us,
        subscription=link.subscription if link.subscribed else 0,
        held=len(held),
        settled=len(queue.gone(link.waiting)),
        unproven=link.unproven(),
        in_doubt=len(link.doubt),
        tombstones=len(queue.gone(link.entries.positions)),
        oldest_held_us=queue.placements.published_us(held.min()) if held else 0,
        **counts._asdict(),
    )
