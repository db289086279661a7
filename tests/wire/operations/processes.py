"""Commands of an operator, as processes."""

import mmap
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

from tests import prefork

ANYWHERE = ("--listen", "127.0.0.1:0")


def command(*arguments):
    return [sys.executable, "-m", "ackq_broker", *map(str, arguments)]


def environment(**extra):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **extra}


def run(*arguments, **extra):
    """Runs a short-lived `ackq-broker`; returns its exit status and both outputs."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = prefork.start_child([str(each) for each in arguments], err, stdout=out, env=extra)
        child.stdin.close()
        status = child.wait(60)
        out.seek(0)
        err.seek(0)
        return status, out.read().decode(), err.read().decode()


def flip(directory, *bodies):
    """Flips a bit of each of these bodies in the journal; called again, restores it."""
    (segment,) = directory.glob("journal-*.seg")
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for body in bodies:
            content[content.find(body[1:]) - 1] ^= 1


@contextmanager
def serving(data, *options, before=(), **extra):
    """Runs `ackq-broker serve` as an operator does, with its log next to the data.

    Yields the process, its listen addresses, and its first line. `before` begins the command.
    """
    log = data.with_suffix(".log")
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [*before, *command("serve", "--data", data, *options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(**extra),
        ) as process,
    ):
        try:
            line = process.stdout.readline()
            assert " listening on " in line, log.read_text()
            yield process, line.split(" listening on ")[1].split(" data=")[0].split(","), line
        finally:
            process.kill()


def refused_start(data, *options, **extra):
    """The one line with which `serve` is refused on a data directory, which it may not make."""
    before = data.exists()
    status, out, errors = run("serve", "--data", data, *options, **extra)
    assert (status, out, errors.count("\n"), data.exists()) == (2, "", 1, before), errors
    assert "Errno" not in errors
    return errors
