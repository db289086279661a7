"""The Spark data source `ackq` and its helpers.

`configure` prepares the session that runs it, `settle` settles messages from within a query,
`txn_options` names a write of a batch, `BatchLogger` logs a line per micro-batch.

Importing this package costs nothing: Spark imports it in every application when it looks data
sources up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ackq import extras

if TYPE_CHECKING:
    from ackq.spark.batch_logger import BatchLogger as BatchLogger
    from ackq.spark.configuration import configure as configure
    from ackq.spark.guarded_write import txn_options as txn_options
    from ackq.spark.settlement.settle import settle as settle

_HOME: Final = {
    "BatchLogger": "batch_logger",
    "configure": "configuration",
    "settle": "settlement.settle",
    "txn_options": "guarded_write",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the one table above names them


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        text = extras.missing(error, f"ackq.spark.{name}", "spark")
        raise ModuleNotFoundError(text, name=error.name) from error
    return getattr(module, name)
