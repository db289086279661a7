"""Walking the log over its segments: recovery, verify and repair see the same groups.

Invariant: every group follows the one before it by number, sequence and chain, also from file to
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ackq_broker.journal.files.directory import segment_name
from ackq_broker.journal.files.format import FormatError, Position
from ackq_broker.journal.read.scan import BrokenLogError, Flaw, Group, SegmentFile, read_groups


def walk(
    directory: Path, begin: Position, numbers: Sequence[int]
) -> Iterator[tuple[SegmentFile, Group]]:
    """The groups from `begin` to the clean end of the log, each with its file, open for now.

    Args:
        directory: The data directory.
        begin: `ORIGIN`, or the position of the snapshot.
        numbers: The segments that are there, ascending.

    Raises:
        BrokenLogError: The log cannot be followed further: a bad group, or a segment that is
            missing or does not fit.
    """
    position = begin
    first = max(1, begin.segment)
    last = max([first, *numbers])
    for number in range(first, last + 1):
        path = directory / segment_name(number)
        try:
            file = SegmentFile(path)
        except FileNotFoundError:
            flaw = Flaw(path, 0, "the file is missing")
            raise BrokenLogError(flaw, at=position) from None
        with file:
            if number != begin.segment:
                position = _next_start(directory, file, position)
            for group in read_groups(file, position, last=number == last):
                yield file, group
                position = group.end


def _next_start(directory: Path, file: SegmentFile, end: Position) -> Position:
    """The start of a segment, which has to fit the end of the one before."""
    try:
        start = file.header().position
    except FormatError as error:
        raise BrokenLogError(Flaw(file.path, 0, str(error)), at=end) from error
    if (start.group, start.chain, start.sequence) != (end.group, end.chain, end.sequence):
        path = directory / segment_name(end.segment) if end.segment else file.path
        reason = (
            f"group {end.group} is the last here, but {file.path.name} begins with group "
            f"{start.group + 1}"
        )
        raise BrokenLogError(Flaw(path, end.offset, reason), at=end)
    return start
