"""Differences between the Spark versions 4.0 to 4.3 (K13), as a flag, classes and functions.

4.2 and newer pass a source the start offset of the next batch and its read limit: `SAYS_START`. 4.0
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
        """Limit of the size of a batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit: a batch has everything that is available."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Limit of the rows of a batch."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stand-in without a method, as these versions of Spark call none."""


if hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """Streaming writer of Arrow batches, which Spark 4.0 gives to any Arrow writer."""


_TIMEZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark uses for columns; times are in UTC.

    Raises:
        PySparkTypeError: A column has a type that no Arrow type holds.
    """
    return to_arrow_schema(schema, **_TIMEZONE)


def is_older_than(major: int, minor: int) -> bool:
    """Whether the installed Spark is older than a version."""
    return tuple(map(int, pyspark.__version__.split(".")[:2])) < (major, minor)
