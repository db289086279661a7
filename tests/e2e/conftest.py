"""Makes the jobs importable, and runs them as a user does: as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[2] / "jobs"
sys.path.insert(0, str(JOBS))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where a job makes its temporary files."""
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
            env={**os.environ, "TMPDIR": str(scratch)},
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


@pytest.fixture
def last_line(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs a job to its end, which must be a success; returns the last line it printed."""

    def run(name: str, *arguments: object) -> str:
        job = start(name, *arguments)
        out, err = job.communicate()
        assert (job.returncode, err) == (0, ""), out + err
        last: Sequence[str] = out.splitlines()[-1:]
        return last[0]

    return run
