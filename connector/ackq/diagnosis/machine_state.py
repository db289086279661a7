"""Findings about a machine that is to run ackq or Spark: Java, Python, packages, Arrow (Q9).

Invariant: pure; each item that was checked has a finding, also when it is in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ackq.diagnosis.finding import Finding, Severity
from ackq.diagnosis.installation_facts import MachineFacts, PythonFacts
from ackq.extras import SOURCES

_LOWEST_JAVA: Final = 17
_LOWEST_PYTHON: Final = (3, 11)
# The lowest version, and the first that is too new, as in pyproject.toml.
_PYSPARK: Final = ((4, 0, 1), (4, 4))
_DELTA: Final = ((4, 4), (4, 5))
# The newest PySpark that Delta 4.4.0 supports, and the first one that no Delta has jars for.
_NEWEST_WITH_DELTA: Final = (4, 2, 0)
_WITHOUT_DELTA: Final = (4, 3)
# A release whose jars are not published.
_DELTA_WITHOUT_JARS: Final = "4.4.1"
_LOWEST_ARROW: Final = (18,)
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OLD_FORMAT: Final = "ARROW_PRE_0_15_IPC_FORMAT"


def check_machine(facts: MachineFacts) -> list[Finding]:
    """The findings of all checks, in the order in which Spark needs the checked items."""
    return [finding for check in _CHECKS for finding in check(facts)]


def _python(facts: MachineFacts) -> Iterator[Finding]:
    python = facts.python
    if _numbers(python.version)[:2] < _LOWEST_PYTHON:
        yield _problem(
            "python-old",
            f"This Python is {python.version} ({python.path}); ackq needs 3.11 or newer.",
            "Make the environment with a newer Python: python3.11 -m venv .venv",
        )
    else:
        yield _ok("python", f"Python {python.version} ({python.path}).")


def _pyspark(facts: MachineFacts) -> Iterator[Finding]:
    version, delta = facts.packages.get("pyspark", ""), "delta-spark" in facts.packages
    if not version:
        yield _note(
            "pyspark-missing",
            "PySpark is not installed in this Python: the client and this command work, the Spark "
            "source and sink do not.",
            f"pip install 'CHECKOUT[spark]' (CHECKOUT: {SOURCES})",
        )
    elif not _is_pyspark_of_ackq(version):
        yield _problem(
            "pyspark-version",
            f"PySpark is {version}; the source and the sink are made for 4.0.1 to 4.3.",
            f"pip install 'pyspark>=4.0.1,<{'4.3' if delta else '4.4'}'",
        )
    else:
        without = _numbers(version) >= _WITHOUT_DELTA and not delta
        none = " Delta has no jars for Spark 4.3 yet." if without else ""
        yield _ok("pyspark", f"PySpark {version}.{none}")


def _delta(facts: MachineFacts) -> Iterator[Finding]:
    """The finding about an installed Delta, unless the version of PySpark is unsupported."""
    version, delta = facts.packages.get("pyspark", ""), facts.packages.get("delta-spark", "")
    if not delta or (version and not _is_pyspark_of_ackq(version)):
        return
    if not _DELTA[0] <= _numbers(delta) < _DELTA[1] or delta == _DELTA_WITHOUT_JARS:
        yield _problem(
            "delta-version",
            f"delta-spark is {delta}; 4.4.0 is the one with published jars for Spark 4.0, 4.1 and "
            "4.2.",
            "pip install 'delta-spark==4.4.0' 'pyspark>=4.0.1,<4.3'",
        )
    elif _numbers(version) >= _WITHOUT_DELTA:
        yield _problem(
            "delta-version",
            f"Delta has no jars for Spark 4.3 yet; PySpark is {version}. The source and the sink "
            "run, Delta tables do not.",
            "pip install 'pyspark>=4.0.1,<4.3'",
        )
    elif _numbers(version) > _NEWEST_WITH_DELTA:
        yield _warning(
            "delta-version",
            f"delta-spark {delta} is made for PySpark 4.0.1 to 4.2.0; this is {version}.",
            "pip install 'pyspark==4.2.0'",
        )
    elif version:
        yield _ok("delta", f"delta-spark {delta} supports this PySpark.")


def _java(facts: MachineFacts) -> Iterator[Finding]:
    if "pyspark" not in facts.packages:
        return
    java = facts.java
    install = "Install one, for instance: apt-get install openjdk-17-jre-headless"
    if not java.program and java.home:
        yield _problem(
            "java-home",
            f"JAVA_HOME is {java.home}, and there is no bin/java in it. Spark looks nowhere else "
            "while it is set.",
            "Set JAVA_HOME to a Java 17 or newer, or unset it: unset JAVA_HOME",
        )
    elif not java.program:
        yield _problem(
            "java-missing",
            "There is no Java: JAVA_HOME is not set and no java is in PATH. Spark needs 17 or "
            "newer.",
            install,
        )
    elif java.error or not java.major:
        yield _problem(
            "java-broken",
            f"{java.program} does not report its version: "
            f"{java.error or 'no version in its answer'}.",
            install,
        )
    elif java.major < _LOWEST_JAVA:
        named = "JAVA_HOME names it" if java.home else "it is the first in PATH"
        yield _problem(
            "java-old",
            f"Java is {java.version} ({java.program}; {named}); Spark 4 needs 17 or newer.",
            "Set JAVA_HOME to a newer Java. " + install,
        )
    elif not java.incubator:
        yield _warning(
            "java-reduced",
            f"Java {java.version} ({java.program}) lacks the module jdk.incubator.vector, which "
            "Spark's launcher asks for: spark-submit and pyspark do not start on it. The jobs of "
            "ackq do.",
            install,
        )
    else:
        yield _ok("java", f"Java {java.version} ({java.program}).")


def _worker(facts: MachineFacts) -> Iterator[Finding]:
    """The finding about the interpreter of Spark's Python workers."""
    if "pyspark" not in facts.packages:
        return
    worker, mine = facts.worker, facts.python
    here = f"export PYSPARK_PYTHON={mine.path}"
    who = f"{worker.named_by} is {worker.program}" if worker.named_by else _unnamed(worker)
    # `configure` sets this interpreter where the environment names none.
    unless = "" if worker.named_by else " Without `ackq.spark.configure`, a query fails."
    if not worker.path:
        yield _problem(
            "worker-python-missing", f"{who}, and there is no such program.{unless}", here
        )
    elif worker.error:
        yield _problem("worker-python-broken", f"{who}, which fails: {worker.error}.{unless}", here)
    elif _numbers(worker.version)[:2] != _numbers(mine.version)[:2]:
        yield _problem(
            "worker-python-version",
            f"{who}: that is Python {worker.version}, and this one is {mine.version}. Spark refuses"
            f" workers of another version.{unless}",
            here,
        )
    elif worker.missing:
        yield _problem(
            "worker-python-packages",
            f"{who} ({worker.path}), which cannot import {', '.join(worker.missing)}: Spark's "
            f"workers need them.{unless}",
            f"{here}; or: {worker.path} -m pip install CHECKOUT (CHECKOUT: {SOURCES})",
        )
    else:
        yield _ok(
            "worker-python", f"{who}: Python {worker.version} with the packages that workers need."
        )


def _unnamed(worker: PythonFacts) -> str:
    return f"PYSPARK_PYTHON is not set, so that Spark starts its workers as {worker.program}"


def _arrow(facts: MachineFacts) -> Iterator[Finding]:
    version = facts.packages.get("pyarrow", "")
    if not version or _numbers(version) < _LOWEST_ARROW:
        yield _problem(
            "pyarrow",
            f"pyarrow is {version or 'not installed'}; ackq needs 18 or newer.",
            "pip install 'pyarrow>=18'",
        )
    else:
        yield _ok("pyarrow", f"pyarrow {version}.")
    if facts.environment.get(_OLD_FORMAT, "0") not in ("", "0"):
        yield _problem(
            "arrow-old-format",
            f"{_OLD_FORMAT} is set: pyarrow then writes a format that Spark 4 does not read.",
            f"unset {_OLD_FORMAT}",
        )
    rows = facts.spark_settings.get(_ROWS)
    if rows is not None and not (rows.isdecimal() and int(rows)):
        yield _warning(
            "arrow-batches",
            f"spark-defaults.conf sets {_ROWS} to {rows}: Arrow batches then have no bound in "
            "rows, and one of 2 GiB ends the query.",
            "Remove the setting; `ackq.spark.configure` sets a suitable one.",
        )


_CHECKS: Final[tuple[Callable[[MachineFacts], Iterator[Finding]], ...]] = (
    _python,
    _pyspark,
    _delta,
    _java,
    _worker,
    _arrow,
)


def _is_pyspark_of_ackq(version: str) -> bool:
    return _PYSPARK[0] <= _numbers(version) < _PYSPARK[1]


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version such as `4.2.0`; any suffix is left out."""
    found = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def _ok(code: str, sentence: str) -> Finding:
    return Finding(code, Severity.OK, sentence)


def _note(code: str, sentence: str, remedy: str) -> Finding:
    return Finding(code, Severity.NOTE, sentence, remedy)


def _warning(code: str, sentence: str, remedy: str) -> Finding:
    return Finding(code, Severity.WARNING, sentence, remedy)


def _problem(code: str, sentence: str, remedy: str) -> Finding:
    return Finding(code, Severity.PROBLEM, sentence, remedy)
