"""Finds the processes of a Spark driver by what they do, and kills one of them with SIGKILL."""

import contextlib
import os
import signal

import psutil

DAEMON = "pyspark.daemon"
# What a process of the driver's tree does, by a word of its command line.
WORDS = {
    "executor": "CoarseGrainedExecutorBackend",
    "reader": "ackq.spark.reader_process",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
}


def tree(pid):
    """(process, command line) of everything below a process, as far as it lives."""
    found = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append((process, " ".join(process.cmdline())))
    return found


def targets(pid, kind):
    """The pids of one kind below the driver.

    A `task` is a forked worker: Spark runs reads, writes and the sink's commit in such ones.
    """
    found = []
    for process, line in tree(pid):
        with contextlib.suppress(psutil.Error):
            if kind == "task":
                if DAEMON in line and DAEMON in " ".join(process.parent().cmdline()):
                    found.append(process.pid)
            elif WORDS[kind] in line:
                found.append(process.pid)
    return sorted(found)


def kill(pid):
    """SIGKILL; False when it was gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_group(pid):
    """SIGKILL to a driver, its JVM and its executors; Python workers see their parents go."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
