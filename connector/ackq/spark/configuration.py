"""Sets what a Spark session needs to run the source and the sink well.

Invariant: with these settings no Arrow batch of a write comes near the 2 GiB that one Arrow vector
can hold.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from ackq import limits
from ackq.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# 1000 to 2000 rows a batch: at 100 bytes a row within 25 % of 10,000 rows, at 1 KiB faster.
_MAX_ROWS: Final = 2_000
# A vector doubles while it grows, so a batch may need three times its size in direct memory, which
# is as large as the heap (1 GiB by default) and shared by the tasks that run at once.
_BATCH_BYTES: Final = 128 * limits.MIB
# Exactly this value makes Spark skip the size of every row, which costs it 4 to 25 times the rest
# of the conversion; one less does not.
_NO_BYTE_BOUND: Final = (1 << 31) - 1
_WORKER: Final = Path(__file__).with_name("worker_python")


def configure(
    builder: SparkSession.Builder,
    *,
    max_message_bytes: int = 64 * limits.KIB,
    fast_workers: bool | None = None,
) -> SparkSession.Builder:
    """Prepares a session for ackq; call it before `getOrCreate()`.

    Sets Arrow's batch bounds for fast writes, and in this process's environment the interpreter of
    Spark's Python workers: this one, where PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON name none.

    Args:
        builder: As from `SparkSession.builder`. What is set on it afterwards wins.
        max_message_bytes: The largest row that a query writes, about, all its columns together.
            Batches get the fewer rows the larger this is, so that memory stays bounded.
        fast_workers: Start workers through a wrapper that lets them import the installed pyspark,
            compiled once, instead of the source in a zip that each worker compiles anew: about
            half the time to the first batch. None: where it is safe, which is a local master
            with a pip-installed pyspark.

    Returns:
        The builder.

    Raises:
        InvalidArgumentError: `max_message_bytes` is not positive.
    """
    if max_message_bytes < 1:
        raise InvalidArgumentError(
            f"max_message_bytes is {max_message_bytes}; it is a size in bytes, 1 or more.",
            max_message_bytes=max_message_bytes,
        )
    rows = max(1, min(_MAX_ROWS, _BATCH_BYTES // max_message_bytes))
    builder.config("spark.sql.execution.arrow.maxBytesPerBatch", str(_NO_BYTE_BOUND))
    builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    if fast_workers is None:
        fast_workers = _is_local(builder) and _can_wrap()
    _choose_interpreter(os.environ, wrap=fast_workers)
    return builder


def _choose_interpreter(environ: os._Environ[str] | dict[str, str], *, wrap: bool) -> None:
    """Names the workers' interpreter where the user named none."""
    interpreter = sys.executable
    if wrap and not environ.keys() & {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}:
        environ["ACKQ_WORKER_PYTHON"] = interpreter
        interpreter = str(_WORKER)
    # Sources are run by the driver's interpreter, if one is named, even on executors.
    python = environ.setdefault("PYSPARK_PYTHON", interpreter)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", python)


def _is_local(builder: SparkSession.Builder) -> bool:
    """Whether the workers run on this host under this process."""
    options: dict[str, object] = getattr(builder, "_options", {})
    master = str(options.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def _can_wrap() -> bool:
    """Whether the wrapper gives workers the very pyspark that the driver has."""
    # Under spark-submit the JVM was there first, with an environment of its own.
    if "PYSPARK_GATEWAY_PORT" in os.environ or not os.access(_WORKER, os.X_OK):
        return False
    installed = Path(pyspark.__file__).parent
    home = os.environ.get("SPARK_HOME")
    return installed.is_dir() and (home is None or Path(home).resolve() == installed.resolve())
