"""Gathers the facts about this machine for `ackq doctor`: Java, Python, packages, settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from ackq.diagnosis.installation_facts import JavaFacts, MachineFacts, PythonFacts

_PACKAGES: Final = ("ackq", "pyspark", "delta-spark", "pyarrow", "grpcio", "protobuf")
# Modules that Spark's workers import on every host, and that Spark and --py-files do not bring.
_MODULES: Final = ("pyarrow", "grpc", "google.protobuf")
_VARIABLES: Final = ("ARROW_PRE_0_15_IPC_FORMAT", "SPARK_HOME", "SPARK_CONF_DIR")
_TIMEOUT_S: Final = 30
_JAVA_VERSION: Final = re.compile(r'version "([^"]+)"')
_PROBE: Final = (
    "import importlib.util, json, sys\n"
    "def there(name):\n"
    "    try: return importlib.util.find_spec(name) is not None\n"
    "    except ImportError: return False\n"
    f"missing = [name for name in {list(_MODULES)!r} if not there(name)]\n"
    "print(json.dumps({'version': '.'.join(map(str, sys.version_info[:3])), 'missing': missing}))\n"
)


def gather_machine(environment: Mapping[str, str]) -> MachineFacts:
    """The facts that Spark and ackq would find in this environment; starts java and python."""
    return MachineFacts(
        python=PythonFacts(path=sys.executable, version=".".join(map(str, sys.version_info[:3]))),
        worker=_worker(environment),
        java=_java(environment),
        packages=_packages(),
        spark_settings=_spark_settings(environment),
        environment={name: environment[name] for name in _VARIABLES if name in environment},
    )


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _java(environment: Mapping[str, str]) -> JavaFacts:
    """The Java of JAVA_HOME, or else the first in PATH, as Spark's scripts look for it."""
    home = environment.get("JAVA_HOME", "")
    program = shutil.which("java", path=str(Path(home, "bin")) if home else environment.get("PATH"))
    if program is None:
        return JavaFacts(home=home)
    try:
        said = _output([program, "-version"], environment)
        found = _JAVA_VERSION.search(said)
        listed = _output([program, "--list-modules"], environment)
    except (OSError, subprocess.SubprocessError) as error:
        return JavaFacts(home=home, program=program, error=_reason(error))
    return JavaFacts(
        home=home,
        program=program,
        version=found[1] if found else "",
        incubator="jdk.incubator.vector" in listed or "java.base" not in listed,
    )


def _worker(environment: Mapping[str, str]) -> PythonFacts:
    """The interpreter of Spark's workers: named by the first variable that is set, or `python3`."""
    named_by = next(
        (each for each in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON") if environment.get(each)), ""
    )
    program = environment.get(named_by, "") or "python3"
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return PythonFacts(named_by, program)
    try:
        said = json.loads(_output([path, "-c", _PROBE], environment).splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return PythonFacts(named_by, program, path, error=_reason(error))
    return PythonFacts(named_by, program, path, said["version"], tuple(said["missing"]))


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    """Runs a program; returns its stdout and stderr together."""
    done = subprocess.run(  # noqa: S603 - the programs that Spark starts
        command,
        env=dict(environment),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise subprocess.SubprocessError(
            f"exit status {done.returncode}{f': {lines[-1]}' if lines else ''}"
        )
    return done.stdout + done.stderr


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer for {_TIMEOUT_S} s"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _spark_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of `spark-defaults.conf`; empty if there is none."""
    home = environment.get("SPARK_HOME", "")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    file = Path(folder, "spark-defaults.conf")
    if not folder or not file.is_file():
        return {}
    found = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        parts = re.split(r"[\s=]+", line.strip(), maxsplit=1)
        if len(parts) == 2 and not line.lstrip().startswith("#"):  # noqa: PLR2004
            found[parts[0]] = parts[1].strip()
    return found
