"""host.py LOG: runs jobs one after another in this process, as in a notebook, with one Spark.

A line of its input is a folder for temporary files and a command line, as JSON; a line of its
output is the result: the exit status, the output, and the errors. Spark's log goes to LOG.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

JOBS = Path(__file__).parents[2] / "jobs"


def run(name: str, arguments: list[str]) -> tuple[int, str, str]:
    """Runs a job to its end; returns its exit status, output and errors."""
    sys.argv = [str(JOBS / name), *arguments]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue(), err.getvalue()


def main() -> None:
    """Runs the jobs of the input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    # The JVM inherits this descriptor.
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    from ackq_broker import embedding
    from kit import java
    from kit.session import spark_session
    from tests import prefork

    java.require_java = functools.cache(java.require_java)  # two processes for each job
    embedding.start_child = prefork.start_embedded
    prefork._server(os.getpid(), *prefork._BROKERS)  # its socket is in no job's folder
    with spark_session("host", Path(sys.argv[1])) as spark:
        # A job's own session is this one, which stays.
        stop, SparkSession.stop = spark.stop, lambda _: None
        for line in sys.stdin:
            tempfile.tempdir, name, *arguments = json.loads(line)
            print(json.dumps(run(name, arguments)), file=answers, flush=True)
        stop()


if __name__ == "__main__":
    sys.path[:0] = [str(JOBS), str(JOBS.parent)]
    main()
