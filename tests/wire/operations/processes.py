"""Commands of an operator, as processes."""

import os
import subprocess
import sys


def command(*arguments):
    return [sys.executable, "-m", "ackq_broker", *map(str, arguments)]


def environment(**extra):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **extra}


def run(*arguments, **extra):
    """Runs a short-lived `ackq-broker`; returns its exit status and both outputs."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(**extra),
    )
    return done.returncode, done.stdout, done.stderr
