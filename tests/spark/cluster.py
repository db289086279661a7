"""Spark's cluster forms for tests: README commands, a standalone cluster, a Connect server.

Invariant: every process started here has ended at the exit of the `with` that started it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ackq.spark
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
WORKER_PYTHON = Path(ackq.spark.__file__).with_name("worker_python")
START_S = 180
RUN_S = 360
# Limit of a test: a program's run and the start of its cluster, on a busy machine.
TEST_S = 900
# The guides whose examples the tests run.
GUIDES = ("connector/docs/spark.md", "connector/docs/recipes.md")
# Two host names on one machine: a speculative copy of a task only goes to another host.
HOSTS = ("127.0.0.1", "127.0.0.2")
MASTER_COMMAND = ("spark-class", "org.apache.spark.deploy.master.Master")
WORKER_COMMAND = ("spark-class", "org.apache.spark.deploy.worker.Worker")


# --- the README ---


def readme(path: str) -> str:
    """The text of a README."""
    return (ROOT / path).read_text(encoding="utf-8")


def readme_section(title: str) -> str:
    """The text of one section of connector/docs/spark.md."""
    text = readme(GUIDES[0])
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def readme_blocks(section: str, language: str) -> list[str]:
    """The fenced blocks of one language in a section or a whole README."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


# --- processes ---


def environment(**extra: str) -> dict[str, str]:
    """The environment of a shell in which this Python and its Spark are on the path."""
    # Settings by `configure` for a Spark in this very process are not for others.
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    return {
        **own,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        # Half the time to the first batch, as with `configure`; see that file.
        "PYSPARK_PYTHON": str(WORKER_PYTHON),
        "ACKQ_WORKER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOSTS[0],
        # For the launchers, the cluster and its executors, too; see tests/conftest.py.
        "JDK_JAVA_OPTIONS": os.environ["SPARK_SUBMIT_OPTS"],
        **extra,
    }


def shell(script: str, folder: Path, env: Mapping[str, str]) -> str:
    """The output of a script, run as a user runs it; it must succeed."""
    process = subprocess.Popen(
        ["bash", "-euc", script],
        cwd=folder,
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=RUN_S)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, f"{script}\n{out}\n{err[-20_000:]}"
    return out


@contextlib.contextmanager
def daemon(command: list[str], folder: Path, env: Mapping[str, str], ready: str) -> Iterator[str]:
    """Runs a process within the `with`; yields the match of the group in `ready` in its log."""
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".log") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )

        def found() -> Any:
            ended = process.poll() is not None
            lines = Path(log.name).read_text(errors="replace").rpartition("\n")[0]
            match = re.search(ready, lines)
            assert match or not ended, lines
            return match

        try:
            yield eventually(f"the start of {command[:2]}", found, within_s=START_S)[1]
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# --- a standalone cluster ---


class Cluster(NamedTuple):
    """A master and two workers of one core on two hosts, without ackq installed.

    Attributes:
        master: Its address, `HOST:PORT`.
        driver: The driver's folder, whose files no executor sees on its Python path.
        python: The interpreter of all hosts.
    """

    master: str
    driver: Path
    python: Path


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A standalone cluster on this machine whose workers are like other hosts."""
    driver = folder / "driver"
    driver.mkdir()
    python = _python_of_hosts(folder, driver)
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    with contextlib.ExitStack() as running:
        url = running.enter_context(
            daemon(
                [*MASTER_COMMAND, "--host", HOSTS[0], "--port", "0", "--webui-port", "0"],
                folder,
                env,
                r"Starting Spark master at spark://(\S+)",
            )
        )
        for host in HOSTS:
            work = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir"]
            ends = [f"worker-{host}", "--webui-port", "0", f"spark://{url}"]
            running.enter_context(
                daemon(
                    [*WORKER_COMMAND, *work, *ends],
                    folder,
                    {**env, "SPARK_LOCAL_IP": host},
                    r"Successfully registered with (master)",
                )
            )
        yield Cluster(url, driver, python)


def _python_of_hosts(folder: Path, driver: Path) -> Path:
    """This Python with all installed packages except ackq; in executors, without driver files.

    A development install is a path file in site-packages; a folder that a path file names is
    searched, but its own path files are not read.
    """
    bare = folder / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = bare / "lib" / version / "site-packages"
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib"))
    interpreter = bare / "bin" / "python"
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [interpreter, "-c", "import pyspark, importlib.util as u; print(u.find_spec('ackq'))"],
        env=without,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout == "None\n", f"ackq is installed as files: {found.stdout}"
    wrapper = folder / "hosts_python"
    wrapper.write_text(
        f"""#!/bin/sh
case $PWD in
  {folder}/worker-*)
    PYTHONPATH=$(printf '%s' "$PYTHONPATH" | tr : '\\n' | grep -v '^{driver}/' | paste -sd: -) ;;
esac
export PYTHONPATH ACKQ_WORKER_PYTHON={interpreter}
exec {WORKER_PYTHON} "$@"
"""
    )
    wrapper.chmod(0o755)
    return wrapper


# --- Spark Connect ---


@contextlib.contextmanager
def connect_server(command: str, folder: Path, port: str) -> Iterator[None]:
    """A Spark Connect server, started by a command, on a port."""
    submit, *arguments = shlex.split(command)
    settings = ["--conf", f"spark.connect.grpc.binding.port={port}"]
    with daemon(
        [submit, *settings, *arguments], folder, environment(), r"Spark Connect server (started)"
    ):
        yield
