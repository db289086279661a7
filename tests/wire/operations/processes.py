"""Commands of an operator, as processes."""

import os
import sys
import tempfile

from tests import prefork


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


def refused_start(data, *options, **extra):
    """The one line with which `serve` is refused on a data directory, which it may not make."""
    before = data.exists()
    status, out, errors = run("serve", "--data", data, *options, **extra)
    assert (status, out, errors.count("\n"), data.exists()) == (2, "", 1, before), errors
    return errors
