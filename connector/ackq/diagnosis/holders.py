"""Findings about the holders and readers of a queue's messages: sessions and channels (Q9).

Invariant: each holding has one finding, which names the holder, since when it holds the messages,
what they pin, and what happens next if nobody acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ackq.diagnosis.finding import Finding, Severity
from ackq.diagnosis.queue_facts import QueueFacts
from ackq.diagnosis.wording import are, argument, count, duration, positions, since, size
from ackq.info import ConsumerInfo, Holding, QueueInfo, SessionInfo

_SHOWN: Final = 20
# A client that holds messages and settles nothing for this long is worth a look.
_QUIET_MS: Final = 60_000
# A micro-batch of this age is worth a look, and this number of attempts at one means that a message
# breaks it.
_LONG_BATCH_MS: Final = 900_000
_MANY_ATTEMPTS: Final = 3
_NOT_SHOWN: Final = (
    "More is not shown: it ended just now, or reads also a queue on which the user has no "
    "permission. An observer sees it."
)


def leases(facts: QueueFacts, _: QueueInfo) -> Iterator[Finding]:
    """One finding for each session that holds messages of the queue."""
    for holding in facts.holdings.holdings[:_SHOWN]:
        session = facts.sessions.get(holding.session)
        if session is not None:
            yield _lease(facts, holding, session)
        elif holding.session:
            yield Finding(
                "lease-not-shown",
                Severity.NOTE,
                f"The session '{holding.session}' has leased {_held(holding)} "
                f"{since(holding.age_ms, facts.now_us)}. {_NOT_SHOWN}",
            )


def channels(facts: QueueFacts, _: QueueInfo) -> Iterator[Finding]:
    """One finding for each channel that holds messages of the queue."""
    for holding in facts.holdings.holdings[:_SHOWN]:
        if not holding.session:
            yield _channel(facts, holding)


def more(facts: QueueFacts, _: QueueInfo) -> Iterator[Finding]:
    """A finding with the number of holdings that are not shown."""
    rest = facts.holdings.holding_count - min(_SHOWN, len(facts.holdings.holdings))
    if rest > 0:
        yield Finding(
            "more-holders",
            Severity.NOTE,
            f"{count(rest, 'more session or channel')} hold messages of the queue.",
        )


def unread(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    """A finding about the ready messages: who gets them next, or why nobody does."""
    if not queue.ready:
        return
    ready, age = f"{are(queue.ready, 'message')} ready", duration(queue.oldest_age_ms)
    consumers = facts.holdings.consumers
    readers = [each for name, each in facts.sessions.items() if name in queue.sessions]
    hidden = [name for name in queue.sessions if name not in facts.sessions]
    if any(consumer.has_room for consumer in consumers):
        yield Finding("delivering", Severity.NOTE, f"{ready}, and being delivered.")
    elif any(session.live for session in readers):
        yield _between_batches(ready, readers)
    elif consumers:
        yield _no_room(facts, f"{ready}, the oldest for {age}")
    elif hidden:
        names = ", ".join(f"'{name}'" for name in hidden[:_SHOWN])
        yield Finding(
            "readers-not-shown",
            Severity.NOTE,
            f"{ready}, the oldest for {age}; the queue has the readers {names}. {_NOT_SHOWN}",
        )
    elif readers:
        names = ", ".join(f"'{session.session}'" for session in readers[:_SHOWN])
        yield Finding(
            "readers-gone",
            Severity.PROBLEM,
            f"{ready}, the oldest for {age}, and nobody reads the queue: its sessions are "
            f"{names}, and no query is connected.",
            "Start the query with its checkpoint again.",
        )
    elif facts.sources:
        names = ", ".join(f"'{name}'" for name in facts.sources[:_SHOWN])
        yield Finding(
            "dead-letters-wait",
            Severity.NOTE,
            f"{ready}, the oldest for {age}: dead letters of {names}, which wait for an operator. "
            "The queue has no reader and needs none.",
            f"See the causes: ackq queue peek {argument(queue.queue)}; to bring them back: "
            f"ackq queue redrive {argument(queue.queue)}",
        )
    else:
        yield Finding(
            "no-consumer",
            Severity.PROBLEM,
            f"{ready}, the oldest for {age}, and nobody reads the queue: it has no "
            "consumer and no session.",
            "Start the program that reads it; to look at the messages: ackq queue peek "
            f"{argument(queue.queue)}",
        )


def _between_batches(ready: str, readers: list[SessionInfo]) -> Finding:
    busy = [session for session in readers if session.live and session.leased]
    if busy:
        names = ", ".join(f"'{session.session}'" for session in busy[:_SHOWN])
        return Finding(
            "behind-a-batch",
            Severity.NOTE,
            f"{ready}, for the next micro-batch of {names}, which works on the previous one.",
        )
    return Finding(
        "between-triggers",
        Severity.NOTE,
        f"{ready}, and the query is connected but has leased nothing: it waits for its "
        "trigger, or for the option minMessagesPerTrigger.",
    )


def _no_room(facts: QueueFacts, ready: str) -> Finding:
    consumers = list(facts.holdings.consumers)
    # A channel that settles now and then is busy, and will take more.
    stuck = all(_is_quiet(each) for each in facts.holdings.holdings if not each.session)
    severity = Severity.PROBLEM if stuck else Severity.NOTE
    full = [each for each in consumers if _is_full(each)]
    if len(full) == len(consumers):
        limit = ", ".join(sorted({f"{each.prefetch:,}" for each in full}))
        return Finding(
            "prefetch-full",
            severity,
            f"{ready}, but {_all(consumers)} full: it has as many unacked messages as its prefetch "
            f"allows ({limit}), and gets more only when it settles some.",
            "See the findings about the clients that hold them." if stuck else "",
        )
    return Finding(
        "client-does-not-read",
        severity,
        f"{ready}, but {_all(consumers)} without room: its prefetch is used up, or its client does "
        "not take the messages that were sent to it.",
        "Check the client's process: it is stopped, blocked in a callback, or cut off."
        if stuck
        else "",
    )


def _is_full(consumer: ConsumerInfo) -> bool:
    return 0 < consumer.prefetch <= consumer.unacked


def _is_quiet(holding: Holding) -> bool:
    """Whether a channel has held messages and settled nothing for longer than it should."""
    return min(holding.quiet_ms, holding.age_ms) >= _QUIET_MS


def _all(consumers: list[ConsumerInfo]) -> str:
    return (
        "its consumer is" if len(consumers) == 1 else f"each of its {len(consumers)} consumers is"
    )


def _channel(facts: QueueFacts, holding: Holding) -> Finding:
    quiet = _is_quiet(holding)
    held = _held(holding)
    settled = duration(min(holding.quiet_ms, holding.age_ms))
    mine = [each for each in facts.holdings.consumers if each.channel == holding.channel]
    full = [each for each in mine if _is_full(each)]
    sentence = (
        f"The client '{holding.channel}' holds {held}, unacked "
        f"{since(holding.age_ms, facts.now_us)}; it has settled nothing for {settled}."
    )
    if full:
        sentence += f" Its prefetch of {full[0].prefetch:,} is used up: it gets no more."
    if not holding.connected:
        sentence += (
            " Its connection is cut: unless it reconnects within 2 s, the messages are ready again."
        )
    elif not mine:
        sentence += " It no longer has a consumer on this queue, but may still settle the messages."
    return Finding(
        "consumer-quiet" if quiet else "unacked-at-consumer",
        Severity.PROBLEM if quiet else Severity.NOTE,
        sentence,
        "Check that process (host:pid). When it is stopped, the messages are ready again at once, "
        "as redelivered."
        if quiet
        else "",
    )


def _lease(facts: QueueFacts, holding: Holding, session: SessionInfo) -> Finding:
    what = (
        f"The session '{session.session}' has leased {_held(holding)} "
        f"{since(holding.age_ms, facts.now_us)}{_batch(session)}. {_read(session)}"
    )
    if session.held_back:
        return Finding(
            "lease-of-older-history",
            Severity.PROBLEM,
            f"{what} It began before the journal was restored or repaired, and is refused until "
            "an operator accepts the new history.",
            "ackq broker accept-history",
        )
    if not session.live:
        return _absent(what, session)
    holder = _holder(session)
    if session.attaches >= _MANY_ATTEMPTS:
        return Finding(
            "lease-attempts",
            Severity.PROBLEM,
            f"{what} {holder} is at attempt {session.attaches} of this batch: a message may break "
            "the query each time.",
            f"Find the message: ackq session lease {argument(session.session)}; stop the query, "
            "then take the message out: ackq session reject "
            f"{argument(session.session)} --tags TAG --reason WHY",
        )
    if holding.age_ms >= _LONG_BATCH_MS:
        return Finding(
            "lease-long",
            Severity.WARNING,
            f"{what} {holder} is connected and works on the batch, at attempt {session.attaches}.",
            "Look at the query in the Spark UI: the messages are accepted only when its checkpoint "
            "has the batch.",
        )
    return Finding(
        "lease-live",
        Severity.NOTE,
        f"{what} {holder} is connected, at attempt {session.attaches}. The messages are accepted "
        "once its checkpoint has the batch.",
    )


def _absent(what: str, session: SessionInfo) -> Finding:
    """The finding for a lease whose holder is not connected."""
    name = argument(session.session)
    gone = f"for {duration(session.away_ms)}" if session.away_ms else "now"
    who = f" {_holder(session)} held it." if session.holder.host else ""
    remedy = (
        "Start the query with its checkpoint: it reads the same rows again. If the query will not "
        f"run again: ackq session release {name}"
    )
    if not session.session_timeout_ms:
        return Finding(
            "lease-without-holder",
            Severity.PROBLEM,
            f"{what} No query is connected to the session {gone}.{who} It has no sessionTimeout: "
            "the messages wait for the query for ever, and no other reader gets them.",
            remedy,
        )
    left = session.session_timeout_ms - session.away_ms
    when = f"in {duration(left)}" if left > 0 else "in a moment"
    return Finding(
        "lease-times-out",
        Severity.WARNING,
        f"{what} No query is connected to the session {gone}.{who} Its sessionTimeout is "
        f"{duration(session.session_timeout_ms)}: {when} the messages are ready again, and the "
        "next reader gets them, as redelivered.",
        remedy,
    )


def detached(facts: QueueFacts, _: QueueInfo) -> Iterator[Finding]:
    """Findings about sessions without a live holder that hold no messages of the queue."""
    holding = {each.session for each in facts.holdings.holdings}
    for session in list(facts.sessions.values())[:_SHOWN]:
        if session.session in holding or session.live:
            continue
        if session.detached:
            yield Finding(
                "session-detached",
                Severity.NOTE,
                f"The session '{session.session}' was away for longer than its sessionTimeout of "
                f"{duration(session.session_timeout_ms)}, and its messages are ready again. When "
                "its query is back, it gets the messages that are still in the queue.",
            )
        else:
            yield Finding(
                "session-idle",
                Severity.NOTE,
                f"The session '{session.session}' reads this queue and holds nothing; no query is "
                "connected to it. A finished query leaves its session, so that the next run "
                "goes on.",
                "If the query will not run again: ackq session release "
                f"{argument(session.session)}",
            )


def retaining(facts: QueueFacts, queue: QueueInfo) -> Iterator[Finding]:
    """Findings about accepted messages that the queue or sessions retain (S13)."""
    if queue.retained:
        yield Finding(
            "queue-retains",
            Severity.NOTE,
            f"The queue retains {count(queue.retained, 'message')} that consumers accepted, "
            f"{duration(queue.retained_age_ms)} back: {size(queue.retained_payload_bytes)} that "
            "count in no queue.",
            f"To read them again: ackq queue rewind {argument(queue.queue)} --earliest",
        )
    for session in list(facts.sessions.values())[:_SHOWN]:
        if session.retain_ms or session.retain_bytes:
            first = session.retained_from_batch
            yield Finding(
                "session-retains",
                Severity.NOTE,
                f"The session '{session.session}' retains {session.retained_batches:,} accepted"
                f" batches, from batch {first} on, {duration(session.retained_age_ms)}"
                f" back: {size(session.retained_payload_bytes)} that count in no queue.",
            )


def _held(holding: Holding) -> str:
    """Describes the messages of a holding, and the journal bytes that they pin."""
    return (
        f"{count(holding.messages, 'message')} ({size(holding.payload_bytes)}, "
        f"{positions(holding.first_position, holding.last_position)}; they keep "
        f"{size(holding.stored_bytes)} of the journal)"
    )


def _batch(session: SessionInfo) -> str:
    if not session.query_id or not session.fetched:
        return ""
    return f", for batch {session.batch_id} of query {session.query_id}"


def _read(session: SessionInfo) -> str:
    return "Its rows were read." if session.fetched else "None of its rows was read yet."


def _holder(session: SessionInfo) -> str:
    holder = session.holder
    if not holder.host:
        return "Its reader"
    name = f" ({holder.application})" if holder.application else ""
    return f"Process {holder.pid} on {holder.host}{name}"
