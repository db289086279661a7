"""Finds the processes of a Spark driver by their roles, and kills one of them with SIGKILL."""

import contextlib
import os
import signal

import psutil

DAEMON = "pyspark.daemon"
# Roles of the processes in the driver's tree, by a word of the command line.
WORDS = {
    "executor": "CoarseGrainedExecutorBackend",
    "reader": "ackq.spark.reader_process",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
}


def tree(pid):
    """(process, command line) of every descendant of a process that still runs."""
    found = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append((process, " ".join(process.cmdline())))
    return found


def targets(pid, kind):
    """The pids of one kind below the driver.

    A `task` is a forked worker: Spark runs reads, writes and the sink's commit in such processes.
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
    """Sends SIGKILL; returns False if the process had already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_group(pid):
    """Sends SIGKILL to a driver, its JVM and executors; Python workers end with their parents."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
