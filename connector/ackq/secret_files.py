"""Warns of secret files (keys, tokens, passwords, users) that everybody on the machine can read.

A file that only its owner and group can read causes no warning: systemd and Kubernetes give secrets
to a service by its group.
"""

from __future__ import annotations

import logging
import shlex
import stat
from functools import cache
from pathlib import Path

_log = logging.getLogger(__name__)


def warn_if_public(path: str | Path) -> None:
    """Logs a warning, once, if every user of the machine can read the file.

    Raises:
        OSError: The file does not exist.
    """
    mode = stat.S_IMODE(Path(path).stat().st_mode)
    if mode & stat.S_IROTH:
        _warn(str(path), mode)


@cache
def _warn(path: str, mode: int) -> None:
    _log.warning(
        "The file '%s' holds a secret, and every user of this machine can read it (mode %04o):"
        " chmod 600 %s",
        path,
        mode,
        shlex.quote(path),
    )
