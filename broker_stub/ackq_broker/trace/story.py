"""The events of a message in sentences, and what is known of it no more (Q9).

Invariant: pure; each event has one sentence and one word for programs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyroaring import BitMap64

from ackq_broker.core import records
from ackq_broker.core.places import DELAYED, GONE, KEPT, READY, UNACKED
from ackq_broker.core.record_fields import Move
from ackq_broker.trace.replay import Event, Replay, events_of
from ackq_broker.trace.search import MOST_FOUND, Search, TracedRow

# How a message that nobody held left its queue, by the record that took it.
_WAITING_ENDS: Final[dict[type[records.Record], tuple[str, str]]] = {
    records.Delivered: ("accepted", "taken by a consumer without acks"),
    records.QueuePurged: ("purged", "purged with its queue"),
    records.QueueDeleted: ("dropped", "its queue was deleted"),
    records.Ticked: ("expired", "expired; its queue has no dead-letter queue"),
    records.Started: ("dropped", "gone with a restart: it was transient, or its block is lost"),
}

# Why a message that was held is ready again, by the record that made it so.
_HOLDING_ENDS: Final[dict[type[records.Record], str]] = {
    records.ChannelClosed: "{by} ended",
    records.SessionReleased: "an operator released {by}",
    records.SessionDetached: "the session timeout of {by} is over",
    records.SessionOpened: "{by} was replaced",
    records.SessionSettled: "an operator released it from {by}",
    records.Started: "the broker was started again, which ended {by}",
}


class Line(NamedTuple):
    """A line of a story.

    Attributes:
        at_us: When, microseconds since the epoch; 0: as things are at the end.
        sequence: The record; 0 at the end.
        what: The word for programs.
        queue: The queue's name; empty: in none.
        position: In that queue; 0: in none.
        sentence: For people.
    """

    at_us: int
    sequence: int
    what: str
    queue: str
    position: int
    sentence: str


def story(done: Replay, row: TracedRow) -> list[Line]:
    """What happened to one message, and where it is now."""
    lines, before = [], None
    for event in events_of(done.events, row):
        what, sentence = _told(event, before)
        line = Line(event.at_us, event.sequence, what, event.queue, event.position, sentence)
        lines.append(line)
        before = event
    now = [
        _now(done, at.place.queue_id, at.place.position, state)
        for at, state in done.now.items()
        if at.row == row and state not in (KEPT, GONE)
    ]
    return lines + (now or [_left(done, lines)])


def notes(found: Search, done: Replay | None, message_id: str) -> list[str]:
    """What the journal can not say, in sentences."""
    base = done.base_sequence if done is not None else 0
    told = []
    if not found.rows:
        told.append(_not_found(found, message_id, whole=_whole(found)))
    elif base and done is not None:
        told.append(
            f"The journal was compacted up to record {base} ({time_of(done.base_us)}): of what "
            "happened before, only what a segment that is still needed says is known."
        )
    else:
        told.append("The journal has all records from the first one on.")
    if len(found.rows) == MOST_FOUND:
        told.append(f"More than {MOST_FOUND} messages have this id; the others are left out.")
    return told + found.flaws + (done.flaws if done is not None else [])


def time_of(at_us: int) -> str:
    """A time as text, to the millisecond, in UTC."""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d} UTC"


def _whole(found: Search) -> bool:
    return bool(found.segments) and found.segments == list(range(1, found.segments[-1] + 1))


def _not_found(found: Search, message_id: str, *, whole: bool) -> str:
    if whole:
        return (
            f"No message with the id '{message_id}' is in the journal, which has all records from "
            "the first one on: none was ever confirmed here as persistent. Transient messages are "
            "not in it."
        )
    return (
        f"No message with the id '{message_id}' is in what the journal still has, which is not all:"
        f" its {len(found.segments)} segments end at record {found.last_sequence}, and segments"
        " whose messages have all left their queues are deleted. If it was published, it was"
        " accepted, dropped or expired before."
    )


# --- one event ---


def _told(event: Event, before: Event | None) -> tuple[str, str]:
    """The word and the sentence of an event; `before` is the one before, of the same message."""
    change = event.before, event.after
    if event.after == "staged":
        told = "staged", f"staged by {event.by or 'a writer'}; not visible yet"
    elif not event.before:
        told = _placed(event, before)
    elif change == (UNACKED, UNACKED):
        told = _read(event)
    elif event.after == UNACKED:
        told = _taken(event)
    elif event.after == DELAYED:
        told = "delayed", f"{_outcome(event)} on {event.by}: ready again after its delay"
    elif event.after == READY:
        told = _ready(event)
    else:
        told = _gone(event)
    return told


def _placed(event: Event, before: Event | None) -> tuple[str, str]:
    where = f"queue '{event.queue}' at position {event.position}"
    record = event.record
    if record is None:
        return "present", f"in {where} ({event.after}) when the snapshot was taken"
    if isinstance(record, records.Redriven):
        return "redriven", f"redriven: back in {where}"
    move = _move(before) if before is not None and before.sequence == event.sequence else None
    if move is not None:
        reason = f", reason '{move.reason}'" if move.reason != move.cause else ""
        settled = f", settled by session '{move.session}'" if move.session else ""
        batch = f" with batch {move.batch_id}" if move.batch_id >= 0 else ""
        return "dead-lettered", (
            f"dead letter in {where}: cause {move.cause}{reason}{settled}{batch}"
        )
    if isinstance(record, records.BatchCommitted | records.TransactionCommitted):
        what = "transaction of " if isinstance(record, records.TransactionCommitted) else ""
        return "committed", f"{what}{event.by} committed: visible in {where}"
    return "published", f"published by {event.by} to {where}"


def _read(event: Event) -> tuple[str, str]:
    record = event.record
    if isinstance(record, records.FetchNoted):
        if not record.query_id:
            return "read", f"read from {event.by} by a reader that names no query"
        return "read", (
            f"read from {event.by} by query {record.query_id} (run {record.run_id}) in its "
            f"micro-batch {record.batch_id}"
        )
    return "attached", f"attempt {event.attempt} at its lease: {_process(record)} attached again"


def _taken(event: Event) -> tuple[str, str]:
    if isinstance(event.record, records.SessionAdvanced | records.SessionOpened):
        epoch = getattr(event.record, "epoch", 1)
        return "leased", (
            f"leased by {event.by} under tag {event.tag} in epoch {epoch}: {_process(event.record)}"
        )
    return "delivered", f"delivered to {event.by} under tag {event.tag}"


def _process(record: records.Record | None) -> str:
    holder = getattr(record, "holder", None)
    if holder is None or not holder.host:
        return "its reader"
    name = f" ({holder.application})" if holder.application else ""
    return f"process {holder.pid} on {holder.host}{name}"


def _outcome(event: Event) -> str:
    return str(getattr(event.record, "outcome", "")) or "failed or released"


def _ready(event: Event) -> tuple[str, str]:
    record = event.record
    if isinstance(record, records.Ticked):
        return "ready", "ready again: its delay is over"
    endings = (how for kind, how in _HOLDING_ENDS.items() if isinstance(record, kind))
    why = next(endings, "{outcome} on {by}").format(by=event.by, outcome=_outcome(event))
    return "ready", f"ready again: {why}"


def _gone(event: Event) -> tuple[str, str]:
    """It is in this queue no more, or only kept for a replay."""
    record = event.record
    move = _move(event)
    if move is not None:
        return _moved(event, move)
    for each in getattr(record, "rejected_there", ()):
        if each.queue_id == event.queue_id and event.position in each.positions:
            how = f"{_rejected(each.cause)} on {event.by}"
            return "rejected", f"{how}, and to be rejected where it came from"
    discarded = {each.queue_id: each.positions for each in getattr(record, "discarded", ())}
    if event.position in discarded.get(event.queue_id, BitMap64()):
        return "dropped", f"dropped: rejected or failed too often on {event.by}, or expired"
    if event.before == UNACKED:
        return _end_of_unacked(event)
    for kind, told in _WAITING_ENDS.items():
        if type(record) is kind:
            return told
    return "dropped", f"dropped: queue '{event.queue}' was at its bound"


def _moved(event: Event, move: Move) -> tuple[str, str]:
    if isinstance(event.record, records.Redriven):
        return "left", f"left queue '{event.queue}' by a redrive"
    if isinstance(event.record, records.Ticked):
        return "expired", f"expired in queue '{event.queue}'"
    return "rejected", f"{_rejected(move.cause)} on {event.by}"


def _rejected(cause: str) -> str:
    return "failed once too often" if cause == "delivery_limit" else "rejected"


def _end_of_unacked(event: Event) -> tuple[str, str]:
    if isinstance(event.record, records.Started):
        return "dropped", "gone with a restart: it was transient, or its block is lost"
    if isinstance(event.record, records.SessionAdvanced | records.Settled):
        return "accepted", f"accepted by {event.by} (tag {event.tag})"
    return "dropped", f"gone from {event.by}, because its queue was deleted"


def _move(event: Event) -> Move | None:
    """The move by which a message left a place; None: it did not move."""
    for move in getattr(event.record, "moves", ()):
        found: Move = move
        if found.queue_id == event.queue_id and event.position in found.positions:
            return found
    return None


# --- the end ---


def _now(done: Replay, queue_id: int, position: int, state: str) -> Line:
    queue = done.queues.get(queue_id, "")
    holder = done.core.holder_at(queue_id, position) if state == UNACKED else None
    by = f": held by {holder[0]} under tag {holder[1]}" if holder is not None else ""
    sentence = f"{state} in queue '{queue}' at position {position}{by}"
    return Line(0, 0, state, queue, position, sentence)


def _left(done: Replay, lines: list[Line]) -> Line:
    """It is in no queue."""
    if not lines:
        return Line(
            0, 0, "gone", "", 0,
            f"in no queue: it was accepted, dropped or expired before record {done.base_sequence} "
            f"({time_of(done.base_us)}), up to which the journal was compacted",
        )  # fmt: skip
    last = lines[-1]
    if last.what == "staged":
        return Line(0, 0, "staged", "", 0, "in no queue: staged, and not committed")
    if last.what in ("published", "present", "committed", "ready") and done.base_sequence:
        return Line(
            0, 0, "gone", "", 0,
            f"in no queue: it left before record {done.base_sequence} "
            f"({time_of(done.base_us)}), up to which the journal was compacted; how is not known",
        )  # fmt: skip
    return Line(0, 0, "gone", "", 0, "in no queue")
