"""Applies the records of a journal again, and notes what happens to some messages (Q9).

Invariant: a recovery's own `apply` says what happened; an event is a change of a message's place or
state, so that nothing is told that the broker did not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ackq_broker.core import Core, records
from ackq_broker.core.places import GONE, KEPT, UNACKED, Place
from ackq_broker.core.record_fields import RoutedRows
from ackq_broker.journal.files.directory import numbers, read_log_end, snapshot_name
from ackq_broker.journal.files.format import CORE
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.read.scan import BrokenLogError, read_log
from ackq_broker.journal.recovery import ORIGIN
from ackq_broker.service.engine.snapshot import unpack_state
from ackq_broker.trace.search import Search, TracedRow

# Records after which a message may have another holder, or none.
_ENDS_HOLDING: Final = (
    records.Settled,
    records.SessionAdvanced,
    records.ChannelClosed,
    records.SessionSettled,
    records.SessionReleased,
    records.SessionDetached,
    records.SessionOpened,
    records.Started,
)


class At(NamedTuple):
    """A message at a place."""

    row: TracedRow
    place: Place


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a record did to a message.

    Attributes:
        sequence: The record; that of the snapshot for what it had.
        at_us: When, by the broker's clock.
        row: The message.
        queue_id: The queue; 0 for rows that are staged.
        queue: Its name.
        position: In that queue.
        before: The state before, one of `core.places`; empty: it was not there.
        after: The state after, or `staged`.
        record: What did it; None: the snapshot had it.
        by: Who: the publisher, the writer, or the session or channel that holds or held it.
        tag: The delivery tag that it has or had there; 0 for none.
        attempt: For a lease: how many holders it has had.
    """

    sequence: int
    at_us: int
    row: TracedRow
    queue_id: int
    queue: str
    position: int
    before: str
    after: str
    record: records.Record | None
    by: str = ""
    tag: int = 0
    attempt: int = 0


@dataclass(slots=True)
class Replay:
    """What became of some messages.

    Attributes:
        events: In the order of the journal.
        core: The state at the end.
        queues: Names of queues by id, deleted ones included.
        now: Where the messages are at the end, with their state.
        base_sequence: The record after which events are known; 0: from the beginning.
        base_us: The broker's time there.
        flaws: What could not be read.
    """

    core: Core
    base_sequence: int
    base_us: int
    events: list[Event] = field(default_factory=list)
    queues: dict[int, str] = field(default_factory=dict)
    now: dict[At, str] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)


def replay(directory: Path, found: Search) -> Replay:
    """Follows the messages that a search found through the records.

    From the first record on where all are there; else from the newest snapshot on.

    Raises:
        DamagedError: The snapshot cannot be read.
        UnsupportedError: A newer version wrote it, or a record.
        FileNotFoundError: A running broker deleted a file meanwhile: try again.
    """
    segments = sorted(numbers(directory, "journal"))
    whole = bool(segments) and segments == list(range(1, segments[-1] + 1))
    core, base_us, begin = Core(), 0, ORIGIN
    sequences = sorted(numbers(directory, "snapshot"))
    if sequences and not whole:
        snapshot = snapshots.read(directory / snapshot_name(sequences[-1]))
        core, base_us = unpack_state(b"".join(snapshot.state))
        begin = snapshot.position
    done = Replay(core, begin.sequence, base_us)
    follower = _Follower(done, found)
    following = [number for number in segments if number >= max(1, begin.segment)]
    sequence = begin.sequence
    try:
        for _, group in read_log(directory, begin, following, read_log_end(directory)):
            for record in group.records:
                if record.header.kind == CORE:
                    sequence += 1
                    follower.apply(sequence, records.decode(record.payload))
    except BrokenLogError as broken:
        if not broken.torn_bytes:
            done.flaws.append(f"{broken}; the records behind it are left out")
    return done


class _Follower:
    """Keeps the places of some messages while records are applied."""

    def __init__(self, done: Replay, found: Search) -> None:
        self._done = done
        self._core = done.core
        self._rows = found.rows
        self._blocks = {row.block_id for row in found.rows}
        self._publishers: dict[bytes, str] = {}
        self._stages: dict[bytes, records.StageOpened] = {}
        self._now_us = done.base_us
        done.queues.update({info.queue_id: info.queue for info in self._core.queues()})
        if done.base_sequence:
            self._before(found)

    def apply(self, sequence: int, record: records.Record) -> None:
        """Applies a record, and notes what it did to them."""
        self._remember(record)
        states = self._done.now
        # Who loses a message by the record is known before it alone.
        asked = isinstance(record, _ENDS_HOLDING)
        held = {
            at: self._core.holder_at(*at.place[:2])
            for at, state in states.items()
            if asked and state == UNACKED
        }
        self._core.apply(sequence, record)
        self._core.drain_dead_blocks()
        self._core.drain_woken()
        self._now_us = max(self._now_us, getattr(record, "at_us", 0))
        moved = False
        for at, before in tuple(states.items()):
            after = self._core.state_at(*at.place[:2])
            if after != before:
                states[at] = after
                moved = moved or after in (GONE, KEPT)
                if before != KEPT:
                    self._note(sequence, at, before, after, record, held.get(at))
                if after == GONE:
                    del states[at]
            elif after == UNACKED:
                self._note_reader(sequence, at, record)
        if self._may_place(record, moved=moved):
            self._note_places(sequence, record)
        self._note_staged(sequence, record)

    def _before(self, found: Search) -> None:
        """What the snapshot has of them, and the records before it that are still there."""
        for block_id, brought in found.brought.items():
            if brought.sequence > self._done.base_sequence:
                continue
            record = records.decode(brought.record)
            self._remember(record)
            self._now_us = getattr(record, "at_us", 0)
            for row in self._rows:
                if row.block_id == block_id:
                    self._note_brought(brought.sequence, row, record)
        self._now_us = self._done.base_us
        self._note_places(self._done.base_sequence, None)

    def _note_brought(self, sequence: int, row: TracedRow, record: records.Record) -> None:
        """The record that brought a message, read without the state that it was applied to."""
        if not isinstance(record, records.Published | records.LinkStored):
            self._note_staged(sequence, record, row)
            return
        for part in record.parts:
            position = _position(part, row.number)
            if position:
                place = Place(part.queue_id, position, record.at_us)
                self._note(sequence, At(row, place), "", "ready", record)

    def _remember(self, record: records.Record) -> None:
        """Names that later records refer to by ids."""
        if isinstance(record, records.QueueDeclared):
            self._done.queues[record.queue_id] = record.queue
        elif isinstance(record, records.PublisherOpened):
            self._publishers[record.publisher_id] = record.label
        elif isinstance(record, records.StageOpened):
            self._stages[record.stage_id] = record

    def _may_place(self, record: records.Record, *, moved: bool) -> bool:
        """Whether a record may have put one of the messages somewhere."""
        if isinstance(record, records.Published | records.LinkStored):
            return record.block_id in self._blocks
        if isinstance(record, records.BatchCommitted | records.TransactionCommitted):
            return bool(self._blocks)
        return moved and bool(getattr(record, "moves", ()))

    def _note_places(self, sequence: int, record: records.Record | None) -> None:
        for row in self._rows:
            for place in self._core.places(row.block_id, row.number):
                at = At(row, place)
                if at not in self._done.now:
                    state = self._core.state_at(*place[:2])
                    self._done.now[at] = state
                    self._note(sequence, at, "", state, record)

    def _note_reader(self, sequence: int, at: At, record: records.Record) -> None:
        """A query that reads the message, or a holder that attaches to its lease again."""
        if isinstance(record, records.FetchNoted | records.SessionAdvanced):
            holder = self._core.holder_at(*at.place[:2])
            if holder is not None and holder[0] == _session(record.session):
                self._note(sequence, at, UNACKED, UNACKED, record, holder)

    def _note_staged(
        self, sequence: int, record: records.Record, only: TracedRow | None = None
    ) -> None:
        if not isinstance(record, records.BlockStaged | records.TransactionStaged):
            return
        for row in self._rows if only is None else (only,):
            if row.block_id == record.block_id:
                place = Place(0, 0, 0)
                self._note(sequence, At(row, place), "", "staged", record)

    def _note(
        self,
        sequence: int,
        at: At,
        before: str,
        after: str,
        record: records.Record | None,
        held: tuple[str, int] | None = None,
    ) -> None:
        if after == UNACKED:
            held = self._core.holder_at(*at.place[:2])
        by, tag = held if held is not None else (self._author(record), 0)
        attempt = 0
        if isinstance(record, records.SessionAdvanced) and after == UNACKED:
            attempt = self._core.sessions(record.session)[0].attaches
        self._done.events.append(
            Event(
                sequence,
                getattr(record, "at_us", 0) or self._now_us,
                at.row,
                at.place.queue_id,
                self._done.queues.get(at.place.queue_id, ""),
                at.place.position,
                before,
                after,
                record,
                by,
                tag,
                attempt,
            )
        )

    def _author(self, record: records.Record | None) -> str:
        """Who published or staged, as far as the journal still says."""
        if isinstance(
            record, records.Published | records.TransactionStaged | records.TransactionCommitted
        ):
            label = self._publishers.get(record.publisher_id, "")
            return label or f"publisher {record.publisher_id.hex()[:8]}"
        if isinstance(record, records.BlockStaged):
            stage = self._stages.get(record.stage_id)
            if stage is None:
                return ""
            return f"batch {stage.batch_id} of writer '{stage.writer}' ({stage.label or 'a task'})"
        if isinstance(record, records.LinkStored):
            return f"link '{record.link}'"
        if isinstance(record, records.BatchCommitted):
            return f"batch {record.batch_id} of writer '{record.writer}'"
        return ""


def _session(name: str) -> str:
    return f"session '{name}'"


def _position(part: RoutedRows, row: int) -> int:
    """The position that a row of a block got in a queue; 0: it did not go there."""
    if not part.first_position:
        return 0
    if part.rows is not None:
        return part.first_position + part.rows.rank(row) - 1 if row in part.rows else 0
    offset = row - part.start
    return part.first_position + offset if 0 <= offset < part.count else 0


def events_of(events: list[Event], row: TracedRow) -> Iterator[Event]:
    """Those of one message."""
    return (event for event in events if event.row == row)
