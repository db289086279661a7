"""The users file of a running broker (A1): its users, and the detection of changes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ackq_broker.security.users import Users, load


class FileVersion(NamedTuple):
    """Metadata that distinguishes versions of a file.

    Its change time is that of contents, owner and mode: an unreadable file may be readable now.
    """

    changed_ns: int
    size: int
    inode: int


def version_of(path: Path) -> FileVersion | None:
    """The present version of a file; None when it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileVersion(status.st_ctime_ns, status.st_size, status.st_ino)


class UsersFile:
    """A users file with its users as of the last reading.

    Args:
        path: The file.

    Raises:
        InvalidArgumentError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = version_of(path)
        self.users = load(path)

    def changed(self) -> bool:
        """Whether the file has changed since the last call or reading; reports each change once."""
        version = version_of(self._path)
        changed = version != self._seen
        self._seen = version
        return changed

    def read(self) -> Users:
        """Reads the file; raises InvalidArgumentError, and then keeps the previous users."""
        self._seen = version_of(self._path)
        self.users = load(self._path)
        return self.users
