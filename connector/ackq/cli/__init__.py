"""The `ackq` command line: administers a broker, publishes, consumes; needs the extra `cli`."""

from __future__ import annotations

import sys

from ackq import extras

_INTERRUPTED = 130


def main() -> None:
    """Runs the command line; its exit status is one of `failure.ExitStatus`."""
    try:
        from ackq.cli.commands import ackq  # noqa: PLC0415 - click may be missing

        ackq()
    except ModuleNotFoundError as error:
        sys.exit(extras.missing(error, "The command ackq", "cli"))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
