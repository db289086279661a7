"""The client's threads and log records in a test process, and a bound for what happens at once."""

import subprocess
import sys
import textwrap
import threading

# For what happens at once, on a machine that may do much else.
SOON_S = 60


def client_threads():
    """The client's threads; a broker's engine in this process has workers of its own."""
    return [
        each
        for each in threading.enumerate()
        if each.name.startswith("ackq-") and not each.name.startswith("ackq-worker")
    ]


def logged(caplog):
    """What the client logged: the server in this process may have something to say as well."""
    return [each for each in caplog.records if each.name.startswith("ackq")]


def refuse_threads(monkeypatch, name):
    """No thread of this name can start; those of the broker in this process can."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def run_program(program):
    """Runs a program of the client in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
