"""Configures a Spark session for the source and the sink: Arrow batch bounds and Python workers.

Invariant: with these settings no Arrow batch of a write comes near the 2 GiB that one Arrow vector
can hold.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.spark.engine import is_older_than

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.conf import RuntimeConfig

# 1000 to 2000 rows a batch: at 100 bytes a row within 25 % of 10,000 rows, at 1 KiB faster.
_MAX_ROWS: Final = 2_000
# A vector doubles while it grows, so a batch may need three times its size in direct memory, which
# is as large as the heap (1 GiB by default) and shared by the tasks that run at once.
BATCH_BYTES: Final = 128 * limits.MIB
# Only at this value Spark skips computing the size of every row, which costs 4 to 25 times the rest
# of the conversion.
NO_BYTE_BOUND: Final = (1 << 31) - 1
ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
# Spark's default for local files starts 16 processes (readlink) in each micro-batch, as Hadoop's
# FileContext does without its native library; this one writes the same files in the same way.
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM: Final = (
    "org.apache.spark.sql.execution.streaming."
    + ("" if is_older_than(4, 1) else "checkpointing.")
    + "FileSystemBasedCheckpointFileManager"
)
# Spark's default, and the option that has a private key: Spark shows the options of a view.
_HIDDEN: Final = "(?i)url|tlskeypem"
_log: Final = logging.getLogger("ackq.spark")
_WORKER: Final = Path(__file__).with_name("worker_python")


T = TypeVar("T", "SparkSession.Builder", "SparkSession")


def configure(
    target: T, *, max_message_bytes: int | None = None, fast_workers: bool | None = None
) -> T:
    """Prepares a session for ackq: its builder before `getOrCreate()`, or a running session.

    Sets Arrow's batch bounds for fast writes; with a local master the class that writes checkpoints
    of local files without starting processes; the redaction of `tlsKeyPem` in Spark's output; and,
    given a builder, in this process's environment the interpreter of Spark's Python workers: this
    one, unless PYSPARK_PYTHON or PYSPARK_DRIVER_PYTHON names one. Bounds that the user has set
    stay, and so does Spark's own bound in bytes if batches of that many rows might be too large
    without it. A setting that a running session refuses is a warning in the log.

    Args:
        target: A builder as from `SparkSession.builder`: settings made on it, before or afterwards,
            win, as do settings of spark-submit. Or a session, as in a notebook or Spark Connect.
        max_message_bytes: Approximate size in bytes of the largest row that a query writes, all
            columns together. With it a write takes a third or less of the time in the JVM: batches
            are bounded in rows only, inversely to this size. None: unknown; Spark's bound in bytes
            stays, which holds for rows of any size. (1200 rows of 1 MiB in one batch end a JVM
            that has 1 GiB.)
        fast_workers: Start workers through a wrapper that makes them import the installed,
            compiled pyspark instead of the zipped source, which each worker compiles again: about
            half the time to the first batch. None: only where it is safe, which is a local master
            with a pip-installed pyspark. Has an effect on a builder only.

    Returns:
        The builder or session.

    Raises:
        InvalidArgumentError: `max_message_bytes` is not positive.
    """
    if max_message_bytes is not None and max_message_bytes < 1:
        raise InvalidArgumentError(
            f"max_message_bytes is {max_message_bytes}; it is a size in bytes, 1 or more.",
            max_message_bytes=max_message_bytes,
        )
    if conf := getattr(target, "conf", None):  # a builder has none
        remote = is_remote()
        settings = _settings(dict(conf.getAll), max_message_bytes)
        if remote:
            # The class has another name in other versions, and the server's may be another.
            settings.pop(_CHECKPOINTS, None)
        _set(conf, settings)
        _warn_of_running(remote=remote)
        return target
    _warn_of_running()
    given = {**_submitted(), **getattr(target, "_options", {})}
    for name, value in _settings(given, max_message_bytes).items():
        target.config(name, value)  # type: ignore[attr-defined]
    local = _is_local(str(given.get("spark.master", "")))
    if fast_workers is None:
        fast_workers = local and _can_wrap()
    _choose_interpreter(os.environ, wrap=fast_workers)
    return target


def _set(conf: RuntimeConfig, settings: Mapping[str, str]) -> None:
    """Applies settings to a running session; logs a warning for each that it refuses."""
    for name, value in settings.items():
        try:
            conf.set(name, value)
        except PySparkException as error:
            _log.warning("The Spark session refuses the setting %s = %s: %s", name, value, error)


def _warn_of_running(*, remote: bool = False) -> None:
    """Warns that a running session keeps its workers: its JVM's environment is set at its start."""
    if remote:
        _log.warning(
            "The Python workers of this Spark session run at its Connect server: install ackq"
            " at that server."
        )
        return
    # A Connect client has no contexts, and there is no public way to look at the present one.
    contexts = getattr(pyspark, "SparkContext", None)
    context = getattr(contexts, "_active_spark_context", None)
    if context is None:
        return
    try:
        environment = context._jvm.java.lang.System.getenv()  # noqa: SLF001
        named = environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON")
    except Exception:  # noqa: BLE001 - a runtime that hides its JVM has workers of its own
        return
    if named:
        return
    _log.warning(
        "A Spark session runs already, so its Python workers stay as they are: Spark starts"
        " 'python3' for them, which finds ackq only if that is this Python. If a query fails with"
        " DATA_SOURCE_NOT_FOUND, end this program or kernel, and start it again with configure"
        " before getOrCreate(), or with: export PYSPARK_PYTHON=%s",
        sys.executable,
    )


def _submitted() -> dict[str, str]:
    """The settings of spark-submit, from its JVM; empty in a plain Python program."""
    if not _under_spark_submit():
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - a Connect client has neither

    SparkContext._ensure_initialized()  # noqa: SLF001 - as `getOrCreate` does
    return dict(SparkConf().getAll())


def _settings(given: Mapping[str, object], max_message_bytes: int | None) -> dict[str, str]:
    """Settings to add to the user's; Spark's byte bound is lifted only if rows bound enough."""
    safe_rows = max(1, BATCH_BYTES // max_message_bytes) if max_message_bytes else 0
    wanted = {
        ROWS: str(min(_MAX_ROWS, safe_rows or _MAX_ROWS)),
        "spark.sql.redaction.options.regex": _HIDDEN,
    }
    rows = str(given.get(ROWS, wanted[ROWS]))
    if rows.isdecimal() and 0 < int(rows) <= safe_rows:
        wanted[BYTES] = str(NO_BYTE_BOUND)
    if _is_local(str(given.get("spark.master", ""))):
        wanted[_CHECKPOINTS] = _BY_FILE_SYSTEM
    return {name: value for name, value in wanted.items() if name not in given}


def _choose_interpreter(environ: os._Environ[str] | dict[str, str], *, wrap: bool) -> None:
    """Sets the workers' interpreter if the user has not."""
    interpreter = sys.executable
    if wrap and not environ.keys() & {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}:
        environ["ACKQ_WORKER_PYTHON"] = interpreter
        interpreter = str(_WORKER)
    # Spark runs data sources with the driver's interpreter, if one is named, even on executors.
    python = environ.setdefault("PYSPARK_PYTHON", interpreter)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", python)


def _under_spark_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _is_local(master: str) -> bool:
    """Whether the workers run on this host under this process."""
    return master == "local" or master.startswith("local[")


def _can_wrap() -> bool:
    """Whether workers started through the wrapper get the driver's pyspark."""
    # Under spark-submit the JVM started first and has its own environment.
    if _under_spark_submit() or not os.access(_WORKER, os.X_OK):
        return False
    installed = Path(pyspark.__file__).parent
    home = os.environ.get("SPARK_HOME")
    return installed.is_dir() and (home is None or Path(home).resolve() == installed.resolve())
