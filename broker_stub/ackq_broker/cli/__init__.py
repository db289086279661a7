"""The command `ackq-broker`: serves a data directory, or looks after one that nobody serves.

From the top: `commands` is the root; a module for each group of commands; `options` declares what
`serve` takes, `settings` reads it from flags, environment and file; `log` is what all share.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder

from ackq import extras


class _WithoutPandas(MetaPathFinder):
    """Hides pandas from this process.

    pyarrow imports it, where it is there, for the first array of Python values: a third of the CPU
    time of a start, for nothing that a broker does.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Finds nothing; ends the search for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("The broker does without pandas.", name=fullname)


def main() -> None:
    """Runs the command line; exit status 1 for a damaged journal, 2 for what is refused."""
    sys.meta_path.insert(0, _WithoutPandas())
    # gRPC, which reads this when it is imported, would add lines of its own to the log for each
    # connection that speaks no TLS, or trusts another authority.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from ackq_broker.cli.commands import main as run  # noqa: PLC0415 - click may be missing
    except ModuleNotFoundError as error:
        sys.exit(extras.missing(error, "The command ackq-broker", "broker"))
    run(prog_name="ackq-broker")
