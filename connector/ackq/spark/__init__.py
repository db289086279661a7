"""The Spark data source `ackq` and the helper `configure` for the session that runs it.

Importing this package costs nothing: Spark imports it in every application when it looks data
sources up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackq.spark.configuration import configure

__all__ = ["configure"]


def __getattr__(name: str) -> object:
    if name == "configure":
        from ackq.spark.configuration import configure  # noqa: PLC0415 - lazy on purpose

        return configure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
