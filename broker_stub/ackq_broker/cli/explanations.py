"""Explains errors of the operating system in words: the file, the cause, the remedy."""

from __future__ import annotations

import errno
import os
import pwd
from typing import Final

_CAUSES: Final = {
    errno.EEXIST: "{name} is a file, and a directory is needed: name another one",
    errno.ENOTDIR: "{name} has a file where a directory is needed: name another one",
    errno.EISDIR: "{name} is a directory, and a file is needed: name another one",
    errno.EACCES: "{user} has no permission for {name}: grant that permission, or name another one",
    errno.EPERM: "{user} has no permission for {name}: grant that permission, or name another one",
    errno.EROFS: "{name} is on a file system that is mounted read-only: mount it writable, or name"
    " another one",
    errno.ENOSPC: "the disk of {name} is full: free some space on it; nothing is lost",
    errno.EDQUOT: "the disk quota of {user} is used up: free some space at {name}; nothing is lost",
    errno.EIO: "the disk of {name} failed: see the system's log, and copy the directory to a "
    "sound disk before anything else",
    errno.ENAMETOOLONG: "the name {name} is too long: choose a shorter one",
    errno.ENOENT: "there is no {name}",
}


def explain(error: Exception) -> str:
    """An error in one line; an operating system's error with a remedy and without its number."""
    if not isinstance(error, OSError):
        return str(error)
    cause = _CAUSES.get(error.errno or 0)
    name = "the data directory" if error.filename is None else str(error.filename)
    if cause is None:
        return f"{name}: {error.strerror or error}"
    return cause.format(name=name, user=_user())


def _user() -> str:
    """The user that runs this process, by name if it has one."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
