"""Shared parts of crash tests: fill a queue, run the driver program, count messages."""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa

from ackq.client import Admin, Publisher
from tests.eventually import SOON_S

ROOT = Path(__file__).parents[2]
SPARK_TIMEOUT_S = 300
# The messages of a batch of `Publishing`, and the bound of the wait for its confirms.
FRAME, FLUSH_S = 20, 600


def ids(first, last):
    """The message ids first..last."""
    return [f"m-{number:06d}" for number in range(first, last + 1)]


def messages(names, body_bytes=100):
    """A batch of messages with these ids."""
    bodies = [name.encode().ljust(body_bytes, b".") for name in names]
    return pa.record_batch(
        [pa.array(bodies, pa.binary()), pa.array(names, pa.string())], names=["body", "message_id"]
    )


def fill(endpoint, queue, names, frame=50):
    """Declares a queue and publishes these ids, confirmed, in small blocks."""
    with Admin(endpoint) as admin:
        admin.declare_queue(queue)
    with Publisher(endpoint, routing_key=queue, mandatory=True) as publisher:
        for start in range(0, len(names), frame):
            publisher.publish_batch(messages(names[start : start + frame]))
        publisher.flush(SOON_S)


class Publishing(threading.Thread):
    """Publishes small batches unless `paused` is set; in the end each message has its confirm.

    Attributes:
        names: The ids of its messages.
        failure: The error that ended it.
    """

    def __init__(self, prefix, endpoint, pause_s, queue="in"):
        super().__init__(daemon=True)
        self.prefix, self.endpoint, self.pause_s, self.queue = prefix, endpoint, pause_s, queue
        self.ended, self.paused, self.quiet = (threading.Event() for _ in range(3))
        self.names, self.failure, self.confirmed = [], None, 0

    def run(self):
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the main thread reports it
            self.failure = error
            self.quiet.set()

    def _run(self):
        answers = []
        with Publisher(
            self.endpoint, routing_key=self.queue, mandatory=True, retry_total_ms=None
        ) as publisher:
            while not self.ended.wait(self.pause_s):
                if self.paused.is_set():
                    publisher.flush(FLUSH_S)
                    self.quiet.set()
                    continue
                first = len(self.names) + 1
                names = [f"{self.prefix}-{number:07d}" for number in range(first, first + FRAME)]
                self.names += names
                answers.append(publisher.publish_batch(self.batch(names)))
            publisher.flush(FLUSH_S)
            self.confirmed = sum(answer.result(0) for answer in answers)

    def batch(self, names):
        """The messages with these ids."""
        return messages(names)

    def pause(self):
        """Stops publishing; each message has its confirm."""
        self.quiet.clear()
        self.paused.set()
        self.quiet.wait()
        assert self.failure is None, self.failure


def in_queue(endpoint, queue):
    """The messages in a queue: id -> number of copies."""
    with Admin(endpoint) as admin:
        batches = list(admin.browse(queue, columns=["message_id"]))
    return Counter(name for batch in batches for name in batch.column(0).to_pylist())


def unacked(endpoint, queue):
    """The numbers of ready and of unacked messages of a queue."""
    with Admin(endpoint) as admin:
        info = admin.queue(queue)
    return info.ready, info.unacked


def spark_process(arguments, log, local, cwd=ROOT, **env):
    """Starts Python with Spark in a process group of its own, so that SIGKILL ends its JVM too.

    Args:
        arguments: Of Python.
        log: The file for its output.
        local: The folder for Spark's files.
        cwd: Its current directory.
        env: Added to its environment.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(local), **env},
        )


def last_error(log):
    """The most informative line of a driver's log: its last error."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return errors[-1][:300] if errors else f"see {log}"


def parser(document):
    """The options of all long forms: the minutes of faults, and the seed of the schedule."""
    made = argparse.ArgumentParser(description=document.split("\n", 1)[0])
    made.add_argument("--minutes", type=float, default=30)
    made.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    return made


def say(text):
    """Prints a line at once."""
    print(text, flush=True)


def new_folder(program, seed):
    """The folder of a run, which stays if a figure is wrong; prints it and the seed."""
    folder = Path(tempfile.mkdtemp(prefix=f"ackq-{program}-"))
    say(f"seed {seed}, files in {folder}")
    return folder


def verdict(figures, wrong, folder):
    """The exit status of a run, 1 if a figure that must be 0 is not; prints which."""
    found = {name: figures[name] for name in wrong if figures[name]}
    say(f"WRONG {found}; the files are in {folder}" if found else "OK")
    if not found:
        shutil.rmtree(folder)
    return int(bool(found))
