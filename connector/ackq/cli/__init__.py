"""The `ackq` command line: administers a broker, publishes, consumes; needs the extra `cli`."""

from __future__ import annotations

import sys

_EXTRA = ("click", "rich")


def main() -> None:
    """Runs the command line; exit status 1 for an error of the call, 2 for a usage error."""
    try:
        from ackq.cli.commands import ackq  # noqa: PLC0415 - click may be missing
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        sys.exit(f"The ackq command needs '{missing.name}': run  pip install 'ackq[cli]'")
    ackq()
