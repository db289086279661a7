"""Repairs a damaged journal to a readable prefix without its lost blocks; begins new histories.

Invariant: records are only ever dropped from the end, because the state is a replay of them; a
damaged block is marked in place, so that no byte of the log moves and all locations stay valid. A
repaired journal is another history (Q8): the new history is written first, so that an interrupted
repair cannot pass for the old one.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ackq import limits
from ackq.errors import DamagedError, UnsupportedError
from ackq_broker.journal.files.directory import (
    DECLARED,
    REPAIRED,
    DataDirectory,
    segment_name,
    unfinished,
)
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.files.format import (
    LOST,
    SEGMENT_HEADER_BYTES,
    FormatError,
    Position,
    SegmentHeader,
)
from ackq_broker.journal.read.scan import BrokenLogError, Flaw, ScannedGroup, read_log
from ackq_broker.journal.recovery import ORIGIN, damaged_error, missing_segments, newest_snapshot
from ackq_broker.journal.tools.verify import inspect
from ackq_broker.journal.write.log import create_segment


class Repaired(NamedTuple):
    """The result of a repair.

    Attributes:
        changed: False when the journal was sound.
        history_id: The new history, 32 hex digits; "" when nothing was changed.
        end: The new end of the log: records after `end.sequence` were dropped.
        cut: Why the log was cut at `end`; None if it was not.
        lost_blocks: Blocks that cannot be read: the next start drops their messages.
        kept_in: The folder of the original files; None if none was changed or kept.
    """

    changed: bool
    history_id: str
    end: Position
    cut: Flaw | None
    lost_blocks: tuple[int, ...]
    kept_in: Path | None


def repair(
    directory: Path, *, keep_damaged: bool = True, segment_bytes: int = limits.SEGMENT_BYTES
) -> Repaired:
    """Repairs a damaged journal so that it opens again.

    Args:
        directory: A data directory that no process has open.
        keep_damaged: Keep the original files in a folder `damaged-N` of the directory; False: they
            are deleted.
        segment_bytes: Size of a segment file.

    Raises:
        InUseError: A process has it open.
        NotFoundError: No such directory, or no journal in it.
        UnsupportedError: The snapshot is damaged: the records it replaced were deleted. Or the
            format is newer.
        DamagedError: FORMAT cannot be read.
    """
    disk = Disk()
    data = DataDirectory(directory, disk, create=False)
    try:
        report = inspect(data)
        lost = report.unsaved_blocks
        if report.opens and {*lost} <= {*data.lost_blocks}:
            return Repaired(
                changed=False,
                history_id="",
                end=report.end,
                cut=None,
                lost_blocks=data.lost_blocks,
                kept_in=None,
            )
        work = _Repair(data, disk, keep_damaged=keep_damaged, segment_bytes=segment_bytes)
        data.lost_blocks = lost
        # From now on the log may end before the recorded end.
        data.log_end = None
        data.new_history(REPAIRED)
        data.write_format()
        return work.run()
    finally:
        data.close()


class _Repair:
    def __init__(
        self, data: DataDirectory, disk: Disk, *, keep_damaged: bool, segment_bytes: int
    ) -> None:
        self._data = data
        self._disk = disk
        self._segment_bytes = segment_bytes
        try:
            self._snapshot = newest_snapshot(data)
        except DamagedError as error:
            raise UnsupportedError(
                f"{error.message}; a damaged snapshot cannot be repaired", directory=data.path
            ) from error
        self._known = data.log_end
        self._keep_damaged = keep_damaged
        self._kept_in: Path | None = None

    def run(self) -> Repaired:
        data = self._data
        begin = self._snapshot.position if self._snapshot else ORIGIN
        self._replace_missing(begin)
        marks: dict[int, dict[int, bytes]] = defaultdict(dict)
        cut: Flaw | None = None
        end = begin
        try:
            for _, group in read_log(data.path, begin, data.segments(), self._known):
                marks[group.end.segment].update(_marks(group))
                end = group.end
        except BrokenLogError as broken:
            if not broken.torn_bytes:
                cut, end = broken.flaw, broken.at
        for segment, patches in marks.items():
            if patches:
                self._rebuild(segment, None, patches)
        if cut is not None:
            self._cut(end)
        return Repaired(
            changed=True,
            history_id=data.require_history().hex(),
            end=end,
            cut=cut,
            lost_blocks=data.lost_blocks,
            kept_in=self._kept_in,
        )

    def _replace_missing(self, begin: Position) -> None:
        """Replaces missing segments by empty ones: their blocks are lost, but the journal opens."""
        for number in missing_segments(self._snapshot, self._data.segments(), self._known):
            if number < begin.segment:
                self._rebuild(number, SEGMENT_HEADER_BYTES, {})
            elif number == begin.segment:
                self._rebuild(number, begin.offset, {})

    def _cut(self, end: Position) -> None:
        """Drops everything after `end`, the last segment first, so that the log never has a gap."""
        for number in reversed(self._data.segments()):
            if number > end.segment:
                path = self._data.path / segment_name(number)
                self._keep(path)
                self._disk.unlink(path)
        if end == ORIGIN:
            history_id = self._data.require_history()
            _, fd = create_segment(
                self._data.path, self._disk, end, history_id, self._segment_bytes
            )
            os.close(fd)
        else:
            self._rebuild(end.segment, end.offset, {})

    def _rebuild(self, number: int, size: int | None, patches: dict[int, bytes]) -> None:
        """Rewrites a segment: its first `size` bytes, or all, with patches applied by offset.

        A header that cannot be read, or is another segment's, is replaced: the groups before a
        snapshot are not read again, blocks in them are found by their offsets.
        """
        path = self._data.path / segment_name(number)
        data = bytearray(path.read_bytes() if path.exists() else b"")
        if size is not None:
            data = data[:size].ljust(size, b"\0")
        for offset, patch in patches.items():
            data[offset : offset + len(patch)] = patch
        if not _is_of(number, data):
            data[:SEGMENT_HEADER_BYTES] = self._new_header(number)
        fd = self._disk.create(unfinished(path))
        try:
            self._disk.write(fd, [memoryview(data)], 0)
            self._disk.sync_file(fd)
        finally:
            os.close(fd)
        self._keep(path)
        self._disk.rename(unfinished(path), path)
        self._disk.sync_directory(self._data.path)

    def _new_header(self, number: int) -> bytes:
        return SegmentHeader(
            number=number,
            salt=secrets.randbits(32),
            first_sequence=1,
            first_group=1,
            chain=0,
            history_id=self._data.require_history(),
        ).pack()

    def _keep(self, path: Path) -> None:
        """Links an original file into the folder of kept files; not a file that repair made."""
        if not self._keep_damaged or not path.exists():
            return
        if self._kept_in is None:
            self._kept_in = self._make_folder()
        kept = self._kept_in / path.name
        if not kept.exists():
            kept.hardlink_to(path)
            self._disk.sync_directory(self._kept_in)

    def _make_folder(self) -> Path:
        taken = {path.name for path in self._data.path.glob("damaged-*")}
        name = next(name for n in count(1) if (name := f"damaged-{n}") not in taken)
        folder = self._data.path / name
        folder.mkdir()
        self._disk.sync_directory(self._data.path)
        return folder


def _is_of(number: int, data: bytearray) -> bool:
    """Whether the bytes of segment `number` begin with its header."""
    try:
        return SegmentHeader.unpack(data).number == number
    except FormatError:
        return False


def _marks(group: ScannedGroup) -> dict[int, bytes]:
    """The record headers of a damaged group, by offset, with its damaged blocks marked as lost."""
    lost = {flaw.block_id for flaw in group.flaws}
    if not lost:
        return {}
    headers: dict[int, bytes] = {}
    crc = group.header.crc
    for record in group.records:
        header = record.header
        if record.block_id in lost:
            header = header._replace(flags=header.flags | LOST)
        headers[record.offset], crc = header.pack(crc)
    return headers


def begin_new_history(directory: Path) -> str:
    """Begins a new history of a data directory; the next start serves it; returns its hex id.

    Args:
        directory: A data directory that no process has open.

    Raises:
        InUseError: A process has it open.
        NotFoundError: No such directory, or no journal in it.
        UnsupportedError: The format is newer than this program.
        DamagedError: FORMAT is missing or cannot be read.
    """
    data = DataDirectory(directory, Disk(), create=False)
    try:
        if not data.formatted:
            raise damaged_error(directory, Flaw(directory / "FORMAT", 0, "the file is missing"))
        history_id = data.new_history(DECLARED)
        data.write_format()
    finally:
        data.close()
    return history_id.hex()
