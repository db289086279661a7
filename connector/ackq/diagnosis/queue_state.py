"""Findings that explain why a queue stands still, if it does: one for each of its states (Q9).

Invariant: pure; the same facts give the same findings. Each state has one function and one code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from ackq.diagnosis import holders, link_state
from ackq.diagnosis.finding import Finding, Severity, ordered
from ackq.diagnosis.queue_facts import QueueFacts
from ackq.diagnosis.wording import are, argument, count, duration, size
from ackq.info import BatchInfo, QueueInfo

_OLD_STAGE_MS: Final = 600_000
_FAILING: Final = 3
_BUILT_IN_DEAD: Final = "ackq.dead"
_SHOWN: Final = 20


def diagnose(facts: QueueFacts) -> list[Finding]:
    """The findings about a queue and its broker, the worst first; there is at least one."""
    found = [finding for rule in _BROKER_RULES for finding in rule(facts)]
    if facts.queue is None:
        return ordered([_missing(facts), *found])
    found += [finding for rule in _QUEUE_RULES for finding in rule(facts, facts.queue)]
    if not any(each.severity in (Severity.PROBLEM, Severity.WARNING) for each in found):
        found.insert(0, _nothing_stuck(facts, facts.queue))
    return ordered(found)


def summary(facts: QueueFacts) -> str:
    """Summarizes the state of a queue in one line."""
    queue = facts.queue
    if queue is None:
        return f"queue '{facts.name}' does not exist"
    counts = f"{queue.ready:,} ready, {queue.unacked:,} unacked"
    for number, what in ((queue.delayed, "delayed"), (queue.staged, "staged")):
        counts += f", {number:,} {what}" if number else ""
    if not queue.ready + queue.unacked + queue.delayed:
        return f"queue '{queue.queue}': {counts}"
    return (
        f"queue '{queue.queue}': {counts}; {size(queue.payload_bytes)}; the oldest message is "
        f"{duration(queue.oldest_age_ms)} old, at position {facts.holdings.oldest_position}"
    )


# --- the broker ---


def _draining(facts: QueueFacts) -> Iterator[Finding]:
    if facts.broker.alarm == "draining":
        yield Finding(
            "broker-draining",
            Severity.PROBLEM,
            f"The broker takes in no new work for any queue. {facts.broker.blocked}",
            "Restart the broker; or, to end the drain: ackq broker drain --resume",
        )
    elif not facts.serving:
        yield Finding(
            "broker-stopping",
            Severity.PROBLEM,
            "The broker is starting or about to stop: it takes in no new work.",
            "Wait until it has started; clients reconnect by themselves.",
        )


def _alarm(facts: QueueFacts) -> Iterator[Finding]:
    reason, kind = facts.broker.blocked, facts.broker.alarm
    if kind not in {"disk", "memory"}:
        return
    disk = kind == "disk"
    yield Finding(
        "disk-alarm" if disk else "memory-alarm",
        Severity.PROBLEM,
        f"Publishers to all queues are {'refused' if disk else 'made to wait'}. {reason} Consumers "
        "and acks go on.",
        "Make room on the disk of the broker's data directory, or empty a long queue: ackq queue "
        "list"
        if disk
        else "See which queue is long: ackq queue list",
    )


def _history(facts: QueueFacts) -> Iterator[Finding]:
    if facts.broker.held_back:
        cause = facts.broker.history_cause or "changed"
        yield Finding(
            "history-not-accepted",
            Severity.PROBLEM,
            f"The broker's journal was restored or repaired (cause: {cause}), and "
            f"{facts.broker.held_back:,} publishers, sessions and writers of the previous history "
            "are refused until an operator accepts the new one: the journal may lack messages that "
            "were confirmed or accepted.",
            "If nothing important is missing: ackq broker accept-history",
        )


def _clock_jump(facts: QueueFacts) -> Iterator[Finding]:
    if facts.broker.clock_jump_ms:
        yield Finding(
            "clock-jump",
            Severity.WARNING,
            f"The clock of the broker's machine jumped {duration(facts.broker.clock_jump_ms)} "
            "ahead. For 10 minutes nothing expires by the new time; then the broker uses it.",
            "Correct that machine's clock before then.",
        )


_BROKER_RULES: Final[tuple[Callable[[QueueFacts], Iterator[Finding]], ...]] = (
    _draining,
    _alarm,
    _history,
    _clock_jump,
)


# --- the queue ---


def _missing(facts: QueueFacts) -> Finding:
    up = f" The broker started {duration(facts.broker.uptime_ms)} ago." if facts.now_us else ""
    return Finding(
        "queue-missing",
        Severity.PROBLEM,
        f"There is no queue '{facts.name}'. It was never declared, was deleted, expired without "
        "use (expires), or was declared as not durable: a restart of the broker deletes such a "
        f"queue with its messages.{up}",
        f"ackq queue declare {argument(facts.name)}",
    )


def _nothing_stuck(facts: QueueFacts, queue: QueueInfo) -> Finding:
    if facts.messages:
        seen = " of what the user may see" if facts.limited else ""
        return Finding("nothing-stuck", Severity.OK, f"Nothing{seen} is stuck.")
    if not queue.published:
        sentence = "The queue is empty, and no message was ever published to it."
    else:
        ends = {
            "accepted": queue.accepted,
            "expired": queue.expired,
            "dead-lettered": queue.dead_lettered,
            "dropped": queue.dropped,
        }
        ended = ", ".join(f"{number:,} {end}" for end, number in ends.items() if number)
        what = count(queue.published, "message")
        sentence = f"The queue is empty. It had {what} so far: {ended or 'none is left'}."
    return Finding("queue-empty", Severity.OK, sentence)


def _bound(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    properties = queue.properties
    drops = properties.overflow == "drop-head"
    messages = queue.ready if drops else facts.messages
    used = queue.payload_bytes + (0 if drops else facts.holdings.staged_bytes)
    bound = ""
    if 0 < properties.max_length <= messages:
        bound = count(properties.max_length, "message")
    elif 0 < properties.max_bytes <= used:
        bound = size(properties.max_bytes)
    if not bound:
        return
    if drops:
        yield Finding(
            "queue-full-drops",
            Severity.WARNING,
            f"The queue is at its bound of {bound}: each new message displaces the oldest ready "
            f"one, which is lost. {are(queue.dropped, 'message')} dropped so far.",
            "Consume faster, or declare a queue with a larger bound and move the publishers to it.",
        )
        return
    parts = f"{queue.ready:,} ready, {queue.unacked:,} unacked, {queue.delayed:,} delayed"
    yield Finding(
        "queue-full-refuses",
        Severity.PROBLEM,
        f"The queue is at its bound of {bound} ({parts}, {queue.staged:,} staged): publishers are "
        "refused until some of its messages are settled.",
        "Start or speed up its consumers; if the messages are not needed: ackq queue purge "
        f"{argument(queue.queue)}",
    )


def _delayed(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    if queue.delayed:
        first = facts.holdings.next_ready_ms
        when = f"in {duration(first)}" if first else "in a moment"
        yield Finding(
            "redelivery-delay",
            Severity.NOTE,
            f"{are(queue.delayed, 'message')} delayed after a failure; no reader gets a "
            f"delayed message. The first is ready {when}.",
        )


def _limit(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    """A finding about a message that fails without end, or a limit without effect (C13)."""
    properties, failures = queue.properties, facts.holdings.most_failures
    ends = properties.delivery_limit and (properties.dead_letter_queue or properties.drop_on_limit)
    if ends:
        return
    if properties.delivery_limit and failures >= properties.delivery_limit:
        yield Finding(
            "delivery-limit-without-dead-letters",
            Severity.PROBLEM,
            f"A message has failed {count(failures, 'time')}, and the delivery limit is "
            f"{properties.delivery_limit}; but the queue has neither a dead-letter queue nor "
            "drop-on-limit, so that the limit has no effect: it is redelivered for ever.",
            _redeclare(queue.queue),
        )
    elif properties.delivery_limit:
        yield Finding(
            "delivery-limit-without-effect",
            Severity.WARNING,
            f"The delivery limit of {properties.delivery_limit} has no effect: the queue has "
            "neither a dead-letter queue nor drop-on-limit.",
            _redeclare(queue.queue),
        )
    elif failures >= _FAILING:
        yield Finding(
            "message-fails-again-and-again",
            Severity.WARNING,
            f"A message has failed {count(failures, 'time')}, and the queue has no delivery limit: "
            "it is redelivered for ever.",
            f"Look at the message: ackq queue peek {argument(queue.queue)}",
        )


def _redeclare(name: str) -> str:
    quoted = argument(name)
    return (
        "A queue's properties cannot be changed. Stop its publishers; once it is empty, ackq "
        "definitions export FILE, set its dead_letter_queue in FILE, ackq queue delete "
        f"{quoted} (with --force if a query reads it), and ackq definitions import FILE"
    )


def _dead_letters(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    target, dead = queue.properties.dead_letter_queue, facts.dead_letters
    if target and dead is None and "dead_letters" not in facts.denied:
        yield Finding(
            "dead-letter-queue-missing",
            Severity.WARNING,
            f"The dead-letter queue '{target}' does not exist: dead letters go to the built-in "
            f"queue '{_BUILT_IN_DEAD}', where they may not be noticed.",
            f"Declare it: ackq queue declare {argument(target)}; see the dead letters so far: "
            f"ackq queue peek {_BUILT_IN_DEAD}",
        )
    if dead is None:
        return
    properties = dead.properties
    full = (0 < properties.max_length <= dead.ready) or (
        0 < properties.max_bytes <= dead.payload_bytes
    )
    if full and properties.overflow == "drop-head":
        yield Finding(
            "dead-letter-queue-full",
            Severity.WARNING,
            f"The dead-letter queue '{target}' is at its bound: each new dead letter displaces "
            f"the oldest, which is lost. {are(dead.dropped, 'message')} dropped so far.",
            f"See the causes: ackq queue peek {argument(target)}; to bring them back: ackq queue "
            f"redrive {argument(target)}",
        )
    elif full:
        yield Finding(
            "dead-letter-queue-full",
            Severity.NOTE,
            f"The dead-letter queue '{target}' is at its bound. It still takes dead letters; "
            "only messages that are published to it directly are refused.",
        )
    if dead.ready:
        yield Finding(
            "dead-letters",
            Severity.NOTE,
            f"The dead-letter queue '{target}' has {count(dead.ready, 'message')}.",
            f"See the causes: ackq queue peek {argument(target)}; to bring them back: ackq queue "
            f"redrive {argument(target)}",
        )


def _staged(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    for batch in facts.batches[:_SHOWN]:
        rows = sum(to.rows for to in batch.targets if to.queue == queue.queue)
        used = sum(to.payload_bytes for to in batch.targets if to.queue == queue.queue)
        if not rows or batch.committed:
            continue
        yield _batch(batch, rows, used)


def _batch(batch: BatchInfo, rows: int, used: int) -> Finding:
    what = (
        f"Batch {batch.batch_id} of '{batch.writer}' has staged {count(rows, 'row')} ({size(used)})"
    )
    if batch.open_stages:
        return Finding(
            "staging",
            Severity.NOTE,
            f"{what}, and {are(batch.open_stages, 'task')} still writing. The rows become visible "
            "when the batch is committed, and take up room until then.",
        )
    if batch.edges:
        return Finding(
            "prepared",
            Severity.NOTE,
            f"{what} for the edges {batch.edges}, one of which may have committed them. When the "
            "query runs again they become visible or are replaced; until then they take up room.",
            f"If it will never run again: ackq batch drop {argument(batch.writer)} "
            f"{batch.batch_id} --force",
        )
    gone = batch.age_ms >= _OLD_STAGE_MS
    goes = "a day" if batch.single else "7 days"
    return Finding(
        "staged-and-silent" if gone else "staging",
        Severity.WARNING if gone else Severity.NOTE,
        f"{what} and not committed them; the write was last heard of {duration(batch.age_ms)} ago. "
        "The rows are not visible and take up room until the write commits, its query runs the "
        f"batch again, or {goes} {'has' if batch.single else 'have'} passed.",
        f"If the write is dead: ackq batch drop {argument(batch.writer)} {batch.batch_id}"
        if gone
        else "",
    )


def _expiry(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    first = facts.holdings.next_expiry_ms
    goes = queue.properties.dead_letter_queue
    become = f"move to the dead-letter queue '{goes}'" if goes else "are deleted"
    if first:
        yield Finding(
            "expiry-ahead",
            Severity.NOTE,
            f"Messages of the queue expire and {become}: the next in {duration(first)}.",
        )
    if queue.expired:
        yield Finding(
            "expired",
            Severity.NOTE,
            f"{count(queue.expired, 'message')} expired so far before being consumed. Expired "
            f"messages {become}.",
        )


def _denied(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    if "batches" in facts.denied:
        yield Finding(
            "batches-not-shown",
            Severity.NOTE,
            "The batches with rows staged for the queue are shown to observers alone.",
        )
    if "dead_letters" in facts.denied:
        yield Finding(
            "dead-letter-queue-not-shown",
            Severity.NOTE,
            f"The dead-letter queue '{queue.properties.dead_letter_queue}' is not shown: the user "
            "has no permission on it.",
        )


def _transient(_: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    if not queue.properties.durable:
        yield Finding(
            "not-durable",
            Severity.NOTE,
            "The queue is not durable: a restart of the broker deletes it with its messages.",
        )


def _links(facts: QueueFacts, _: QueueInfo) -> Iterator[Finding]:
    """Warnings about the links that bring messages to the queue or publish its messages.

    A full window is left out, as the queue's other findings explain it.
    """
    inbound = map(link_state.held_up, facts.links)
    for findings in chain(inbound, map(link_state.outbound_held_up, facts.outbound)):
        for found in findings:
            if found.severity is Severity.WARNING and found.code != "link-window-full":
                yield found


_QUEUE_RULES: Final[tuple[Callable[[QueueFacts, QueueInfo], Iterator[Finding]], ...]] = (
    _bound,
    holders.unread,
    holders.leases,
    holders.channels,
    holders.more,
    holders.detached,
    holders.retaining,
    _delayed,
    _limit,
    _dead_letters,
    _staged,
    _denied,
    _expiry,
    _transient,
    _links,
)
