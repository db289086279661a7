"""The exit status of each kind of error, and the output of a failed command."""

import json
import logging
import os
from contextlib import suppress

import click
import pytest

from ackq import errors
from ackq.cli import failure
from ackq.cli.failure import Failure

# Exit statuses promised to scripts, by the base class of each part of the error tree.
STATUSES = {
    **dict.fromkeys((errors.ClosedError, errors.DamagedError, errors.InternalError), 1),
    errors.InvalidArgumentError: 2,
    errors.NotFoundError: 3,
    **dict.fromkeys((errors.PreconditionFailedError, errors.UnsupportedError), 4),
    **dict.fromkeys((errors.AlreadyHeldError, errors.FencedError), 4),
    **dict.fromkeys((errors.UnauthenticatedError, errors.PermissionDeniedError), 5),
    errors.TlsError: 5,
    errors.BrokerUnavailableError: 6,
    **dict.fromkeys((errors.UnroutableError, errors.NackError), 7),
    errors.OutcomeUnknownError: 8,
}


@pytest.mark.parametrize("cls", list(errors.BY_CODE.values()), ids=lambda cls: cls.__name__)
def test_each_error_has_its_exit_status(cls):
    """Each error class has the exit status of its kind."""
    expected = next(STATUSES[base] for base in cls.__mro__ if base in STATUSES)
    assert failure.exit_status(cls("m")) == expected


def test_a_warning_without_a_reader_ends_nothing(monkeypatch):
    """C17, P10: the thread of a stream that logs it goes on."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert failure.run(lambda: logging.getLogger("ackq").warning("away"), as_json=False) == 0
        monkeypatch.undo()
        with suppress(BrokenPipeError):
            stderr.close()


NO_QUEUE = failure.failure_of(errors.QueueNotFoundError("No.", queue="q"))


def raising(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "code", "said"),
    [
        (NO_QUEUE, 3, "queue_not_found", "No."),
        (click.UsageError("Wrong."), 2, "usage", "Wrong."),
        (Failure("Nothing was changed.", code="declined"), 1, "declined", "Nothing was changed."),
        (KeyboardInterrupt(), 130, "interrupted", "Interrupted."),
        (click.Abort(), 130, "interrupted", "Interrupted."),
    ],
)
def test_what_a_failed_command_says(error, status, code, said, capsys):
    """One line for people; with --json a document with code, fields and status."""
    assert failure.run(raising(error), as_json=False) == status
    assert capsys.readouterr().err.endswith(f"Error: {said}\n")
    assert failure.run(raising(error), as_json=True) == status
    document = json.loads(capsys.readouterr().err)
    assert document == {
        "version": 1,
        "error": {
            "code": code,
            "message": said,
            "fields": {"queue": "q"} if status == 3 else {},
            "exit_status": status,
        },
    }
