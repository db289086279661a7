"""Finds a message id in the blocks that the segments of a journal still have (Q9).

Invariant: every block in a readable group is looked at, also one that nothing refers to any more:
its bytes stay until its segment goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackq.errors import MalformedBlockError
from ackq.wire import block
from ackq_broker.journal.files.directory import numbers, read_log_end, require_journal, segment_name
from ackq_broker.journal.files.format import CORE, LOST, FormatError
from ackq_broker.journal.read.scan import (
    BrokenLogError,
    ScannedGroup,
    SegmentFile,
    read_groups,
    read_last,
)
from ackq_broker.service.blocks.compacted import unpack

MOST_FOUND: Final = 1_000


class TracedRow(NamedTuple):
    """A row of a block with the id: one message, in each queue that it went to.

    `published_us` is its publish time, by its publisher or the broker; 0 for none.
    """

    block_id: int
    number: int
    published_us: int


class Brought(NamedTuple):
    """The record that brought a block, of which the journal still has the bytes."""

    sequence: int
    record: bytes


class Search(NamedTuple):
    """What a search found.

    Attributes:
        rows: In the order of the journal, each once; `MOST_FOUND` at most.
        brought: By block id the record that brought it, where the journal still has it.
        segments: The segments that were read, ascending.
        first_sequence: The first record that they have; 0 for none.
        last_sequence: The last one.
        flaws: What could not be read, as text.
    """

    rows: list[TracedRow]
    brought: dict[int, Brought]
    segments: list[int]
    first_sequence: int
    last_sequence: int
    flaws: list[str]


def search(directory: Path, message_id: str) -> Search:
    """Looks for a message id in every block of a journal.

    Raises:
        NotFoundError: No such directory, or no journal in it.
        FileNotFoundError: A running broker deleted a segment meanwhile: try again.
    """
    require_journal(directory)
    segments = sorted(numbers(directory, "journal"))
    rows: dict[tuple[int, int], TracedRow] = {}
    brought: dict[int, Brought] = {}
    flaws: list[str] = []
    first = last = 0
    for number in segments:
        with SegmentFile(directory / segment_name(number)) as file:
            try:
                for group in _groups(file, last=number == segments[-1]):
                    first = first or group.header.first_sequence
                    last = max(last, group.end.sequence)
                    for row, by in _found(file, group, message_id.encode()):
                        if len(rows) < MOST_FOUND:
                            rows.setdefault((row.block_id, row.number), row)
                        if by is not None:
                            brought[row.block_id] = by
            except (BrokenLogError, FormatError) as broken:
                if not getattr(broken, "torn_bytes", 0):
                    flaws.append(f"{broken}; what is behind it in this file is left out")
    return Search(list(rows.values()), brought, segments, first, last, flaws)


def _groups(file: SegmentFile, *, last: bool) -> Iterator[ScannedGroup]:
    begin = file.header().position
    if last:
        return read_last(file, begin, read_log_end(file.path.parent))
    return read_groups(file, begin, last=False)


def _found(
    file: SegmentFile, group: ScannedGroup, message_id: bytes
) -> Iterator[tuple[TracedRow, Brought | None]]:
    """The rows of a group's blocks with the id, each with the record that brought its block."""
    sequence = group.header.first_sequence - 1
    for record in group.records:
        core = record.header.kind == CORE
        sequence += core
        if record.block_id is None or record.header.flags & LOST:
            continue
        data = bytes(file.read(record.bulk_offset, record.header.bulk_length))
        # Blocks are not compressed: an id that is in none of the bytes is in no row.
        if message_id not in data:
            continue
        by = Brought(sequence, record.payload) if core else None
        for row in _rows(record.block_id, data, message_id.decode()):
            yield row, by


def _rows(block_id: int, data: bytes, message_id: str) -> Iterator[TracedRow]:
    stored = unpack(data)
    try:
        header, batch = block.decode(stored.data)
    except MalformedBlockError:
        return  # damaged, or of a newer version; the records tell of it all the same
    if "message_id" not in batch.schema.names:
        return
    same = pc.equal(batch.column("message_id"), pa.scalar(message_id))
    at = np.flatnonzero(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
    numbers_of = at if stored.rows is None else stored.rows[at]
    times = batch.column("published_at") if "published_at" in batch.schema.names else None
    for index, number in zip(at.tolist(), numbers_of.tolist(), strict=True):
        own = times[index].value if times is not None and times[index].is_valid else None
        yield TracedRow(block_id, number, own if own is not None else header.published_at_us)
