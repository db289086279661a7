"""Begins a new history by hand, after a restore that a start cannot detect (Q8)."""

from __future__ import annotations

from pathlib import Path

from ackq_broker.journal.files.directory import DECLARED, DataDirectory
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.read.scan import Flaw
from ackq_broker.journal.recovery import damaged_error


def begin_new_history(directory: Path) -> str:
    """Begins a new history, which the next start serves; returns its id, 32 hex digits.

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
