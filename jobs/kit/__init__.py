"""Shared parts of the jobs; none of them knows what a job moves, except `flights`."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot start or go on; the message says what to do."""


def say(line: str) -> None:
    """Prints a line, unbuffered also through a pipe."""
    print(line, flush=True)
