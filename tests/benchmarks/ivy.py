"""Jars of Maven Central by their coordinates, by the Ivy that comes with Spark."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pyspark

_TIMEOUT_S = 600.0


def jars(*coordinates: str, dependencies: bool = False) -> list[str]:
    """Paths of jars in Ivy's cache; the first time on a machine they are downloaded.

    Args:
        *coordinates: `group:artifact:version` each.
        dependencies: Also those that they depend on.

    Raises:
        RuntimeError: One could not be had; with Ivy's output.
    """
    found: dict[str, None] = {}
    for each in coordinates:
        found |= dict.fromkeys(_resolved(each, dependencies=dependencies))
    return list(found)


def _resolved(coordinate: str, *, dependencies: bool) -> list[str]:
    (ivy,) = Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="ackq-benchmark-ivy-") as folder:
        paths = Path(folder, "paths")
        command = ["java", "-jar", str(ivy), "-warn", "-confs", "default"]
        command += ["-cachepath", str(paths), "-dependency", *coordinate.split(":")]
        done = subprocess.run(
            command if dependencies else [*command, "-notransitive"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            cwd=folder,
        )
        if done.returncode or not paths.exists() or not paths.read_text("utf-8").strip():
            raise RuntimeError(
                f"Ivy found no {coordinate}; it needs Maven Central the first time:\n"
                f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return paths.read_text("utf-8").strip().split(":")
