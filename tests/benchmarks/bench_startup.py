"""The first rows of a new query, cold: queue and in-memory source, into no-op sink and Delta.

Invariant: each measurement is a program of its own, started alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import harness
import startup_probe
from harness import Comparison, Figures, Measurement

HELP = "seconds from start() of a new query to its first rows, in a new process"
SINKS = {"noop": "no-op sink", "delta": "Delta"}
_TIMEOUT_S = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the sinks."""
    parser.add_argument(
        "--sinks",
        type=lambda text: text.split(","),
        default=list(SINKS),
        help=f"which, separated by commas ({','.join(SINKS)})",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[harness.Result]:
    """A comparison per sink, by the time to the first rows, and the times themselves."""
    for sink in args.sinks:
        times = Figures(f"cold start into {SINKS[sink]}", "s")
        comparison = Comparison(
            f"first rows of a new query into {SINKS[sink]}", "in memory", "ackq", None
        )
        anchor = functools.partial(cold, times, sink, "in memory", "")
        subject = functools.partial(cold, times, sink, "ackq", endpoint)
        yield harness.interleave(comparison, args.repetitions, anchor, subject)
        yield times.without_warm_up()


def cold(times: Figures, sink: str, name: str, endpoint: str) -> Measurement:
    """Runs the program once; without an endpoint on rows in memory."""
    if not endpoint:
        return probe(times, name, "memory", sink, endpoint)
    with harness.queue(endpoint) as queue:
        harness.fill(endpoint, queue, rows=startup_probe.ROWS, size=startup_probe.BODY_BYTES)
        return probe(times, name, queue, sink, endpoint)


def probe(times: Figures, name: str, source: str, sink: str, endpoint: str) -> Measurement:
    """Runs the program and adds the times that it reports."""
    done = subprocess.run(
        [sys.executable, str(Path(startup_probe.__file__)), source, sink, endpoint],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if done.returncode:
        raise RuntimeError(f"The query did not start:\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    times.add({f"{name}, {part}": seconds for part, seconds in found.items()})
    return Measurement(1, {"first rows": found["first rows"]})
