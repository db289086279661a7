"""Makes the jobs importable, and runs them as a user does: as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.prefork import PYTHON
from tests.wire.brokers import rabbitmq_server
from tests.wire.brokers.rabbitmq_server import RabbitMqServer

JOBS = Path(__file__).parents[2] / "jobs"
sys.path.insert(0, str(JOBS))

COUNT = 450
# A job's exit status, its output, and its errors.
Ended = tuple[int, str, str]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The folder for a job's temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def start(scratch: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a job with arguments; one that still runs at the end of the test is killed."""
    running: list[subprocess.Popen[str]] = []

    def run(name: str, *arguments: object) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            [sys.executable, str(JOBS / name), *map(str, arguments)],
            env={
                **os.environ,
                **dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), PYTHON),
                "TMPDIR": str(scratch),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(job)
        return job

    yield run
    for job in running:
        job.kill()
        job.communicate()


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that runs jobs one after another: Spark is started for the first of them."""
    folder = tmp_path_factory.mktemp("host")
    with (
        (folder / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("host.py")), str(folder / "spark.log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), PYTHON),
            text=True,
        ) as process,
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run_next(host: subprocess.Popen[str], scratch: Path) -> Callable[..., Ended]:
    """Runs a job to its end in the process that ran the previous jobs."""

    def run(*line: object) -> Ended:
        assert host.stdin is not None
        assert host.stdout is not None
        print(json.dumps([str(scratch), *map(str, line)]), file=host.stdin, flush=True)
        ended: Ended = json.loads(host.stdout.readline())
        return ended

    return run


@pytest.fixture
def next_line(run_next: Callable[..., Ended]) -> Callable[..., str]:
    """As `run_next`, for a job that must succeed; returns the last line that it printed."""

    def run(*line: object) -> str:
        status, out, err = run_next(*line)
        assert (status, err) == (0, ""), out + err
        return out.splitlines()[-1]

    return run


@pytest.fixture
def there_and_back(next_line: Callable[..., str], tmp_path: Path) -> Callable[..., list[object]]:
    """Runs jobs of the README that move flights out and back: each once, and none is left.

    It takes the two command lines, other values in them, and further arguments of both and of the
    second, whose command line it returns.
    """
    from kit import flights
    from tests.e2e import readme

    def run(
        lines: list[list[str]], where: dict[str, str], both: list[object], back: list[str]
    ) -> list[object]:
        out, into = (readme.changed(line, home=tmp_path, **where) for line in lines)
        assert next_line(*out, *both, "--limit", COUNT) == (
            f"rows={COUNT} carried=0 published={COUNT} sent={COUNT} there_before=0"
            f" there_after={COUNT} left=0 OK"
        )
        parsed = ["--json-schema", flights.JSON_SCHEMA, "--option", "maxMessagesPerTrigger=150"]
        reading = [*into, *both, *parsed, *back]
        assert next_line(*reading) == (
            f"read={COUNT} replayed=0 delta_rows={COUNT} there_before={COUNT} there_left=0"
            f" accepted={COUNT} ready=0 unacked=0 duplicates=0 OK"
        )
        return reading

    return run


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMqServer]:
    """A node of RabbitMQ, with queues of the tests' own."""
    if missing := rabbitmq_server.missing():
        servers.absent(missing, rabbitmq_server.REMEDY)
    with RabbitMqServer(tmp_path_factory.mktemp("rabbitmq") / "node") as server:
        yield server
