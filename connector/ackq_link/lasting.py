"""Whether a directory outlives the process that writes to it.

One in memory, in the writable layer of a container, or where a machine clears up at its start does
not. That it lies on a disk does not prove that it does: this refuses what certainly is temporary.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

_CLEARED: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - those are refused
_FLEETING: Final = {
    "tmpfs": "in memory",
    "ramfs": "in memory",
    "overlay": "in the writable layer of a container",
    "aufs": "in the writable layer of a container",
}
_MOUNTS: Final = Path("/proc/self/mountinfo")


def why_temporary(directory: Path) -> str:
    """Why a directory, which need not exist yet, does not outlive this machine's next start.

    Empty: nothing that could be found speaks against it.
    """
    path = directory.absolute().resolve()
    for cleared in dict.fromkeys((*_CLEARED, tempfile.gettempdir())):
        if path.is_relative_to(Path(cleared).resolve()):
            return f"it is under {cleared}, which is for temporary files"
    kind = _file_system(path, _mounts())
    if kind in _FLEETING:
        return f"its file system, {kind}, is {_FLEETING[kind]}"
    return ""


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # another system than Linux
        return ""


def _file_system(path: Path, mounts: str) -> str:
    """The type of the file system that a resolved path is on; empty when it is not known."""
    found, depth = "", -1
    for line in mounts.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two at one place the later covers the earlier.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = source.split(" ")[0], len(point.parts)
    return found
