"""The first rows of a new query, cold: queue and in-memory source, into no-op sink and Delta.

Invariant: each measurement is a program of its own, started alone: this one, by
`bench_startup.py QUEUE SINK ENDPOINT`, on rows in memory without an endpoint. Neither the JVM nor
Python is warm, only the machine's page cache. It prints seconds as JSON: until the session exists,
and from `start()` to the end of the first micro-batch.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import arrow_baseline
import harness
import spark_harness
from harness import Figures, Measurement, Pair

from ackq.spark import schema
from ackq.wire import columns
from tests.crash.local_spark import DELTA

HELP = "seconds from start() of a new query to its first rows, in a new process"
OPTIONS = {}
SINKS = {"noop": "no-op sink", "delta": "Delta"}
LOAD = spark_harness.Load(100, 1_000, 0)
_TIMEOUT_S = 600
_POLL_S = 0.02


def run(args, endpoint):
    """A comparison per sink, by the time to the first rows, and the times themselves."""
    for sink, name in SINKS.items():
        times = Figures(f"cold start into {name}", "s")
        yield from harness.compare(
            {
                "in memory": partial(cold, times, "in memory", "memory", sink, ""),
                "ackq": partial(cold_queue, times, sink, endpoint),
            },
            {f"first rows of a new query into {name}": Pair("ackq", "in memory")},
            args.reps,
        )
        yield times.without_warm_up()


def cold_queue(times, sink, endpoint):
    """Runs the program once on a queue."""
    with harness.queue(endpoint) as queue:
        harness.fill(endpoint, queue, rows=LOAD.total, size=LOAD.size)
        return cold(times, "ackq", queue, sink, endpoint)


def cold(times, name, source, sink, endpoint):
    """Runs the program once, and adds the times that it reports."""
    done = subprocess.run(
        [sys.executable, __file__, source, sink, endpoint],
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


def main(source, sink, endpoint):
    """Runs the query to its first micro-batch."""
    began = time.perf_counter()
    settings = DELTA if sink == "delta" else {}
    with spark_harness.session(settings) as spark, tempfile.TemporaryDirectory() as folder:
        there = time.perf_counter()
        if endpoint:
            rows = spark.readStream.format("ackq").options(endpoint=endpoint, queue=source).load()
        else:
            every = schema.default(columns.DELIVERED)
            rows = arrow_baseline.read(spark, LOAD, every, LOAD.rows, 1)
        writer = rows.writeStream.format(sink).option("checkpointLocation", f"{folder}/checkpoint")
        options = {"delta": {"path": f"{folder}/table"}}.get(sink, {})
        started = time.perf_counter()
        query = writer.options(**options).trigger(processingTime="0 seconds").start()
        while not any(each["numInputRows"] for each in query.recentProgress):
            assert query.isActive, query.exception()
            assert time.perf_counter() - started < _TIMEOUT_S, "no rows in time"
            time.sleep(_POLL_S)
        first = time.perf_counter()
        query.stop()
    print(json.dumps({"session": there - began, "first rows": first - started}), flush=True)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    main(*sys.argv[1:])
