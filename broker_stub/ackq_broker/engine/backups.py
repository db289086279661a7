"""Backups of a serving broker, each a subdirectory of the operator's backup directory (O5).

Invariant: a client chooses a name in that directory and nothing else.
"""

from __future__ import annotations

import errno
import logging
import re
import time
from pathlib import Path
from typing import Final

from ackq.errors import AckqError, DiskFullError, InvalidArgumentError, PreconditionFailedError
from ackq_broker.engine.engine import Engine
from ackq_broker.journal import Backup

_log = logging.getLogger(__name__)

_PERMISSION: Final = " Give the broker's user the permission to write there."
_REMEDIES: Final = {
    errno.ENOSPC: " Free disk space.",
    errno.EDQUOT: " Free disk space.",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Backups:
    """Makes backups, one at a time.

    Args:
        engine: Its journal is backed up.
        directory: The directory for backups; None: none are made.
    """

    def __init__(self, engine: Engine, directory: Path | None) -> None:
        self._engine = engine
        self._directory = directory
        self._busy = False

    async def make(self, name: str) -> Backup:
        """Backs up everything decided so far, under a name; an empty name is the time in UTC.

        Raises:
            InvalidArgumentError: The name is not allowed for a directory.
            PreconditionFailedError: A backup of that name exists, another one is being made, or the
                broker has no directory for backups.
            DiskFullError: The directory has no room, or cannot be written.
        """
        if self._directory is None:
            raise PreconditionFailedError(
                "The broker has no directory for backups: start it with --backup-dir DIR."
            )
        name = name or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        if not _NAME.fullmatch(name) or name.endswith(".new"):
            raise InvalidArgumentError(
                f"A backup cannot have the name {name[:100]!r}: up to 100 letters, digits, '.', '_'"
                " and '-', the first a letter or digit, and no '.new' at the end.",
                name=name[:100],
            )
        if self._busy:
            raise PreconditionFailedError("A backup is being made: try again when it is done.")
        self._busy = True
        try:
            made = await self._engine.snapshots.back_up(self._directory.absolute() / name)
        except AckqError as error:
            _log.error("the backup failed: %s", error)
            raise
        except OSError as error:
            _log.error("the backup failed: %s", error)
            place = self._directory / name
            told = f"There is no backup: {place}: {error.strerror or error}."
            remedy = _REMEDIES.get(error.errno or 0, "")
            raise DiskFullError(told + remedy, directory=place) from error
        finally:
            self._busy = False
        _log.info(
            "backup %s: up to record %d, %d bytes, %d of them written and the rest linked",
            *(made.directory, made.sequence, made.total_bytes, made.copied_bytes),
        )
        return made
