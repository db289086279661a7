"""The Spark data source `ackq` and its helpers.

`configure` prepares the session that runs it, `settle` settles messages from within a query,
`BatchLogger` logs a line per micro-batch.

Importing this package costs nothing: Spark imports it in every application when it looks data
sources up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ackq.spark.batch_logger import BatchLogger as BatchLogger
    from ackq.spark.configuration import configure as configure
    from ackq.spark.settlement.settle import settle as settle

_HOME: Final = {
    "BatchLogger": "batch_logger",
    "configure": "configuration",
    "settle": "settlement.settle",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the one table above names them


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
