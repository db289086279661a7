"""The command `ackq-broker`: serves a data directory, or looks after one that nobody serves.

From the top: `commands` is the root; a module for each group of commands; `options` declares what
`serve` takes, `settings` reads it from flags, environment and file; `log` is what all share.
"""

from __future__ import annotations

import os
import sys

from ackq import extras


def main() -> None:
    """Runs the command line; exit status 1 for a damaged journal, 2 for what is refused."""
    # gRPC, which reads this when it is imported, would add lines of its own to the log for each
    # connection that speaks no TLS, or trusts another authority.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from ackq_broker.cli.commands import main as run  # noqa: PLC0415 - click may be missing
    except ModuleNotFoundError as error:
        sys.exit(extras.missing(error, "The command ackq-broker", "broker"))
    run(prog_name="ackq-broker")
