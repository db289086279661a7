"""Dumps a journal as text: a line for every file, group and record; no lock, no change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ackq.errors import DamagedError
from ackq_broker.journal.files.directory import (
    numbers,
    read_log_end,
    require_journal,
    segment_name,
    snapshot_name,
)
from ackq_broker.journal.files.format import CORE, LOST, FormatError, Position
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.read.scan import (
    BrokenLogError,
    ScannedGroup,
    SegmentFile,
    read_groups,
    read_last,
)


def dump(directory: Path) -> Iterator[str]:
    """Yields lines about every file of a journal, in order, and its damage; works beside a broker.

    Raises:
        NotFoundError: No such directory, or no journal in it.
    """
    require_journal(directory)
    form = directory / "FORMAT"
    yield (
        f"FORMAT {form.read_text(encoding='utf-8', errors='backslashreplace').strip()}"
        if form.exists()
        else "FORMAT is missing"
    )
    for sequence in sorted(numbers(directory, "snapshot")):
        yield _snapshot_line(directory / snapshot_name(sequence))
    number = 0
    while left := [each for each in sorted(numbers(directory, "journal")) if each > number]:
        number = left[0]
        path = directory / segment_name(number)
        try:
            yield from _segment_lines(path)
        except FileNotFoundError:
            yield f"{path.name} was deleted meanwhile"
    known = read_log_end(directory)
    for missing in range(number + 1, known.segment + 1 if known else 0):
        yield f"{segment_name(missing)} damage: the file is missing"


def _snapshot_line(path: Path) -> str:
    try:
        snapshot = snapshots.read(path)
    except FileNotFoundError:
        return f"{path.name} was deleted meanwhile"
    except DamagedError as error:
        return f"{path.name} {error.message}"
    position = snapshot.position
    return (
        f"{path.name} sequence {position.sequence}, continues at segment {position.segment} byte "
        f"{position.offset} after group {position.group}, {len(snapshot.table)} blocks, state of "
        f"{sum(map(len, snapshot.state))} bytes, history {snapshot.history_id.hex()}"
    )


def _segment_lines(path: Path) -> Iterator[str]:
    with SegmentFile(path) as file:
        # The broker names the next segment before it cuts this one, so this is the last one if, now
        # that its size is known, there is no other.
        last = path.name == segment_name(max(numbers(path.parent, "journal"), default=0))
        try:
            header = file.header()
        except FormatError as error:
            yield f"{path.name} {file.size} bytes, damage: {error}"
            return
        yield (
            f"{path.name} {file.size} bytes, first sequence {header.first_sequence}, "
            f"first group {header.first_group}, chain {header.chain:08x}, salt {header.salt:08x}, "
            f"history {header.history_id.hex()}"
        )
        try:
            for group in _groups(file, header.position, last=last):
                yield from _group_lines(group)
        except BrokenLogError as broken:
            kind = f"torn tail of {broken.torn_bytes} bytes" if broken.torn_bytes else "damage"
            yield f"  {broken.flaw.offset:>10} {kind}: {broken.flaw.reason}"


def _groups(file: SegmentFile, begin: Position, *, last: bool) -> Iterator[ScannedGroup]:
    """The groups of a segment; a log that is shorter than FORMAT says is damaged.

    FORMAT is read after the size of the file: a clean end writes FORMAT before it cuts the file.
    """
    if not last:
        return read_groups(file, begin, last=False)
    return read_last(file, begin, read_log_end(file.path.parent))


def _group_lines(group: ScannedGroup) -> Iterator[str]:
    header = group.header
    yield (
        f"  {group.offset:>10} group {header.number}: {header.records} records, "
        f"{header.length} bytes, sequence from {header.first_sequence}, crc {header.crc:08x}"
    )
    damaged = {flaw.block_id for flaw in group.flaws}
    sequence = header.first_sequence
    for record in group.records:
        core = record.header.kind == CORE
        what = f"record {sequence}: {record.header.length} bytes" if core else "relocation"
        sequence += core
        if record.block_id is not None:
            what += f", block {record.block_id} of {record.header.bulk_length} bytes"
        if record.header.flags & LOST:
            what += ", lost"
        if record.block_id in damaged and record.block_id is not None:
            what += ", damaged"
        yield f"    {record.offset:>10} {what}"
