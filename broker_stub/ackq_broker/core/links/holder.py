"""Holder of a link (L1): opened for one source and one queue, fenced by epoch and token."""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq.errors import (
    FencedError,
    InvalidArgumentError,
    LimitError,
    LinkNotFoundError,
    PreconditionFailedError,
)
from ackq_broker.core import commands, history, records
from ackq_broker.core.checks import (
    check_characters,
    check_length,
    check_new,
    check_owner,
    check_share,
    queue_named,
)
from ackq_broker.core.commands import Decision, LinkAck, OpenedLink
from ackq_broker.core.holders import (
    already_held,
    claim,
    holder_fields,
    holder_text,
    new_holder,
)
from ackq_broker.core.links import answers
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State

# Between the remote queue and the rule for origin keys (L2) in the text of a source.
KEY: Final = ", key "


def open_link(state: State, command: commands.OpenLink, now_us: int) -> Decision:
    """L1, L13, L27: creates a link, or opens a known one for its present or next holder."""
    assert command.holder.token
    if command.reject_there and command.ack is LinkAck.STORED:
        raise InvalidArgumentError(
            f"The link '{command.link}' cannot have ack=stored with on-reject=there or "
            "on-reject=discard: a message that was acknowledged at the remote broker cannot be "
            "rejected there later. Choose ack=settled, or on-reject=here.",
            link=command.link,
        )
    found = state.links.get(command.link)
    decision = (
        _make(state, command, now_us) if found is None else _again(state, found, command, now_us)
    )
    # Counted at once, before it is on disk: permits of an older stream would now be sent to nobody,
    # and proofs of later permits would be taken for theirs.
    stream = state.link_streams[command.link] = state.link_streams.get(command.link, 0) + 1
    return Decision(decision.records, decision.reply._replace(stream=stream))


def _again(state: State, found: Link, command: commands.OpenLink, now_us: int) -> Decision:
    """Opens an existing link, for its present or its next holder."""
    what = f"the link '{found.name}'"
    check_owner(what, found.user, command.user, "Give your link another name.")
    _check_history(state, found)
    _check_free(found, command)
    queue = queue_named(state, command.queue)
    if _is_another(found.source, command.source) or found.queue_id != queue.queue_id:
        here = state.queues[found.queue_id].name
        raise PreconditionFailedError(
            f"The link '{found.name}' brings messages from {found.source} to queue '{here}'; this "
            f"process asked for messages from {command.source} to queue '{queue.name}' under the "
            "same name. Give the new link another name, or remove the old one with `ackq link "
            f"remove {found.name}`.",
            link=found.name,
            source=found.source,
            queue=here,
        )
    _check_target(queue)  # a link of an earlier version may have one that is refused now
    holder, epoch = claim(found, command.holder, now_us)
    same = holder is found.holder
    going_on = same and found.subscribed
    reply = OpenedLink(
        found.incarnation,
        epoch,
        found.subscription if going_on else 0,
        found.next_number if going_on else 1,
        found.paused,
        answers.unproven_runs(found) if going_on else (),
    )
    source = command.source if KEY in command.source else found.source
    options = (found.ack, found.drop_ambiguous, found.reject_there, found.source)
    claimed = found.user or not command.user
    wanted = (command.ack, command.drop_ambiguous, command.reject_there, source)
    if same and claimed and options == wanted:
        return Decision(reply=reply)
    record = records.LinkOpened(
        found.name,
        found.incarnation,
        epoch,
        holder,
        source,
        found.queue_id,
        command.ack.value,
        now_us,
        command.drop_ambiguous,
        command.reject_there,
        command.user,
    )
    return Decision((record,), reply)


def apply_opened(state: State, _sequence: int, record: records.LinkOpened) -> None:
    """Adds a link, or changes its holder and options."""
    link = state.links.get(record.link)
    if link is None:
        link = Link(record.link, record.incarnation, record.holder, record.source)
        link.opened_us = record.at_us
        link.queue_id = record.queue_id
        link.history = state.history
        state.links[link.name] = link
        state.queues[link.queue_id].links.add(link.name)
    elif record.epoch > link.epoch:
        link.cut(record.at_us)
    link.epoch = record.epoch
    link.holder = record.holder
    link.source = record.source
    link.ack = LinkAck(record.ack)
    link.drop_ambiguous = record.drop_ambiguous
    link.reject_there = record.reject_there
    link.user = link.user or record.user


def subscribe(state: State, command: commands.SubscribeLink, now_us: int) -> Decision:
    """L17: begins a new subscription of a link."""
    link = find(state, command.link, command.epoch, command.stream)
    return Decision((records.LinkSubscribed(link.name, now_us),), link.subscription + 1)


def apply_subscribed(state: State, _sequence: int, record: records.LinkSubscribed) -> None:
    """Begins the next subscription of a link."""
    link = state.links[record.link]
    link.subscribe(state.queues[link.queue_id], record.at_us)


def link_named(state: State, name: str) -> Link:
    """The link of this name; raises LinkNotFoundError."""
    link = state.links.get(name)
    if link is None:
        raise LinkNotFoundError(f"There is no link '{name}'. See `ackq link list`.", link=name)
    return link


def find(state: State, name: str, epoch: int, stream: int) -> Link:
    """The link that a caller holds in this epoch, on its newest stream.

    Raises:
        LinkNotFoundError: It was removed.
        HistoryChangedError: It was opened in an older history (L27).
        FencedError: Another holder took it over, or its holder opened a newer stream (L1).
    """
    link = link_named(state, name)
    _check_history(state, link)
    if epoch != link.epoch:
        raise FencedError(
            f"The link '{link.name}' is held by {holder_text(link.holder)} in epoch {link.epoch}; "
            f"this process has epoch {epoch}. End this process: the messages that it has not "
            "acknowledged are delivered to the other one.",
            link=link.name,
            epoch=epoch,
            current_epoch=link.epoch,
            **holder_fields(link.holder),
        )
    if stream != state.link_streams.get(name, stream):
        raise FencedError(
            f"A newer stream of link '{link.name}' replaced this one.", link=link.name, epoch=epoch
        )
    return link


def check_subscription(link: Link, subscription: int) -> None:
    """L17: refuses deliveries and permits of another subscription: InvalidArgumentError."""
    if not link.subscribed or subscription != link.subscription:
        now = f"{link.subscription} is the current one" if link.subscribed else "it has none now"
        raise InvalidArgumentError(
            f"The link '{link.name}' sent deliveries of subscription {subscription}, but {now}. "
            "Connect to the remote broker again, and subscribe.",
            link=link.name,
            subscription=link.subscription if link.subscribed else 0,
        )


def _make(state: State, command: commands.OpenLink, now_us: int) -> Decision:
    check_new("link", command.link)
    check_characters("link", command.link)
    check_length("The source of the link", command.source, limits.MAX_LINK_SOURCE_BYTES)
    queue = queue_named(state, command.queue)
    _check_target(queue)
    check_share("links", command.user, limits.MAX_LINKS, state.links)
    if len(state.links) >= limits.MAX_LINKS:
        raise LimitError(
            f"The link '{command.link}' was not opened: the broker has {limits.MAX_LINKS} links, "
            "its limit. Remove links that no process runs with `ackq link remove NAME`.",
            link=command.link,
            limit=limits.MAX_LINKS,
        )
    record = records.LinkOpened(
        command.link,
        command.new_incarnation,
        1,
        new_holder(command.holder, now_us),
        command.source,
        queue.queue_id,
        command.ack.value,
        now_us,
        command.drop_ambiguous,
        command.reject_there,
        command.user,
    )
    return Decision((record,), OpenedLink(command.new_incarnation, 1, 0, 1, False))


def _is_another(source: str, wanted: str) -> bool:
    """Whether two sources differ; one of an earlier version does not name the key."""
    return source not in {wanted, wanted.rpartition(KEY)[0]} and source.rpartition(KEY)[0] != wanted


def _check_history(state: State, link: Link) -> None:
    history.check(
        state,
        link.history,
        f"The link '{link.name}'",
        f"Or remove it with `ackq link remove {link.name} --forget`, and start it again: every "
        "message that the remote broker still has is then stored, even if it was stored before.",
    )


def _check_free(link: Link, command: commands.OpenLink) -> None:
    if command.incumbent_live and command.holder.token != link.holder.token:
        raise already_held(
            link,
            "One process at a time runs a link: stop that process, or give this link another "
            "name; two links of different names may share a queue of the remote broker.",
        )


def _check_target(queue: Queue) -> None:
    """L13: refuses a queue that can lose messages: PreconditionFailedError."""
    properties = queue.properties
    if not properties.durable:
        raise PreconditionFailedError(
            f"The queue '{queue.name}' is not durable: a restart of the broker would lose "
            "messages that the link has acknowledged. Delete it, and declare it durable.",
            queue=queue.name,
        )
    if properties.overflow == "drop-head":
        raise PreconditionFailedError(
            f"The queue '{queue.name}' drops its oldest messages when it is full, and the link "
            "would acknowledge them at the remote broker. Declare it with "
            "overflow=reject-publish: then the link waits.",
            queue=queue.name,
        )
    # What expires into its own queue is dropped (C13).
    if properties.message_ttl_ms and properties.dead_letter_queue in ("", queue.name):
        raise PreconditionFailedError(
            f"Messages of the queue '{queue.name}' that expire are dropped, and the link would "
            "acknowledge them at the remote broker. Declare it with another dead-letter queue, or "
            "without a TTL. A link that exists has to be removed first, with `ackq link remove "
            "--forget`: the remote broker then delivers again what the link holds.",
            queue=queue.name,
        )


def end_subscriptions(
    state: State, lost: dict[int, BitMap64], at_us: int, *, new_history: bool
) -> None:
    """Removes entries of lost messages, by queue id, from links at a start (Q7, L27).

    Lost messages were not settled: a link that had them has to subscribe again, and their
    redeliveries are stored. In a new history records may be missing, so no subscription continues,
    and every acknowledgement may have left.
    """
    for name in tuple(state.links) if lost or new_history else ():
        link = state.links[name]
        gone = link.entries.positions & lost.get(link.queue_id, BitMap64())
        waits = not gone.isdisjoint(link.bound)
        link.forget(gone)
        if new_history or waits:
            link.cut(at_us)
        if new_history:
            link.distrust()
