"""Jars of Maven Central by their coordinates, by the Ivy that comes with Spark."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

_TIMEOUT_S = 600.0
_MODULE = """<ivy-module version="2.0"><info organisation="ackq" module="tests"/><dependencies>
{}
</dependencies></ivy-module>"""
# Its report has the module's name: in the common cache, runs at one time would write the same file.
_SETTINGS = """<ivysettings><caches resolutionCacheDir="{}"/>
<include url="${{ivy.default.settings.dir}}/ivysettings.xml"/></ivysettings>"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" transitive="{}" conf="default->default"/>'


def jars(*coordinates: str, dependencies: bool = False) -> list[str]:
    """Paths of jars in Ivy's cache; the first time on a machine they are downloaded.

    Args:
        *coordinates: `group:artifact:version` each.
        dependencies: Also their dependencies.

    Raises:
        RuntimeError: A jar could not be resolved; with Ivy's output.
    """
    found: dict[str, None] = {}
    for each in coordinates:
        found |= dict.fromkeys(_resolved(each, dependencies=dependencies))
    return list(found)


def classpath(coordinates: Sequence[str], alone: Sequence[str] = ()) -> str:
    """Java's class path of jars with all their dependencies, and of others without them.

    Raises:
        RuntimeError: A jar could not be resolved; with Ivy's output.
    """
    lines = [_DEPENDENCY.format(*each.split(":"), "true") for each in coordinates]
    lines += [_DEPENDENCY.format(*each.split(":"), "false") for each in alone]
    with tempfile.TemporaryDirectory(prefix="ackq-ivy-") as folder:
        module = Path(folder, "ivy.xml")
        module.write_text(_MODULE.format("\n".join(lines)), "utf-8")
        what = ", ".join([*coordinates, *alone])
        return os.pathsep.join(_run(["-ivy", str(module)], folder, what))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keeps other test processes of this user from Ivy's caches for the block.

    Two downloads of one jar at one time write the same file, and both fail.
    """
    with Path(tempfile.gettempdir(), f"ackq-ivy-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolved(coordinate: str, *, dependencies: bool) -> list[str]:
    arguments = ["-dependency", *coordinate.split(":")]
    if not dependencies:
        arguments.append("-notransitive")
    with tempfile.TemporaryDirectory(prefix="ackq-ivy-") as folder:
        return _run(arguments, folder, coordinate)


def _run(arguments: list[str], folder: str, what: str) -> list[str]:
    (ivy,) = Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar")
    paths, settings = Path(folder, "paths"), Path(folder, "settings.xml")
    settings.write_text(_SETTINGS.format(folder), "utf-8")
    command = ["java", "-jar", str(ivy), "-settings", str(settings), "-warn"]
    command += ["-confs", "default", "-cachepath", str(paths)]
    with alone():
        done = subprocess.run(
            [*command, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            cwd=folder,
        )
    if done.returncode or not paths.exists() or not paths.read_text("utf-8").strip():
        raise RuntimeError(
            f"Ivy found no {what}; it needs Maven Central the first time:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return paths.read_text("utf-8").strip().split(os.pathsep)
