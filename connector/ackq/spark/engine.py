"""What the versions of Spark do not have in common, 4.0 to 4.3 (K13); nothing else knows them.

4.2 and newer tell a source where its query stands, and how much a batch may have: `SAYS_START`. 4.0
and 4.1 do not. 4.0 has no class for a streaming writer of Arrow batches.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "SAYS_START",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "is_older_than",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    SAYS_START = True
except ImportError:
    SAYS_START = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything that there is."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows at most."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Says nothing to a Spark that does not ask."""


if hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """Spark 4.0 gives Arrow batches to any writer that is an Arrow writer."""


_TIMEZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark has for columns; times are of UTC.

    Raises:
        PySparkTypeError: No Arrow type holds one of them.
    """
    return to_arrow_schema(schema, **_TIMEZONE)


def is_older_than(major: int, minor: int) -> bool:
    """Whether the installed Spark is older than a version."""
    return tuple(map(int, pyspark.__version__.split(".")[:2])) < (major, minor)
