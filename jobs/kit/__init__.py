"""Shared parts of the jobs; only `flights` knows the data that a job moves."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot start or go on; the message says what to do."""


def say(line: str) -> None:
    """Prints a line, unbuffered also through a pipe."""
    print(line, flush=True)
