"""The command `ackq-broker`: serves a data directory, or maintains one that no broker serves.

From the top: `commands` is the root; a module for each group of commands; `options` declares the
options of `serve`, `settings` reads them from flags, environment and file; all share `log`.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.abc import MetaPathFinder

from ackq import extras


class _WithoutPandas(MetaPathFinder):
    """Hides pandas from this process.

    If it is installed, pyarrow imports it for the first array of Python values: a third of the CPU
    time of a start, without any use in a broker.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Finds no module; raises ModuleNotFoundError to end the search for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("The broker does without pandas.", name=fullname)


def main() -> None:
    """Runs the command line.

    Exit status 1 for a damaged journal, 2 for a refused command, 130 after Ctrl-C, 141 if the
    reader of the output ended.
    """
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it serves: it ends nothing (O3)
    sys.meta_path.insert(0, _WithoutPandas())
    # gRPC, which reads this variable when it is imported, would add its own lines to the log for
    # each connection that does not speak TLS, or trusts another authority.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from ackq_broker.cli.commands import main as run  # noqa: PLC0415 - click may be missing
    except ModuleNotFoundError as error:
        sys.exit(extras.missing(error, "The command ackq-broker", "broker"))
    run(prog_name="ackq-broker")
