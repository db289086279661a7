"""Shared parts of the jobs; only `flights` knows the data that a job moves."""

from __future__ import annotations

import os
import sys
from typing import TextIO


class JobError(Exception):
    """The job cannot start or go on; the message says what to do."""


def say(line: str) -> None:
    """Prints a line, unbuffered also through a pipe; a job goes on if its reader has ended."""
    _print(line, sys.stdout)


def complain(line: str) -> None:
    """As `say`, on stderr."""
    _print(line, sys.stderr)


def _print(line: str, stream: TextIO) -> None:
    try:
        print(line, file=stream, flush=True)
    except BrokenPipeError:  # the reader, `head` perhaps, has ended
        # Python writes what is left when it ends, and would fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
