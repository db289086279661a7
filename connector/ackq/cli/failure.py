"""The end of a command: its exit status by the kind of error, and its output on stderr.

For people an error is one line; with `--json` it is a JSON document, like everything on stderr. The
statuses are a promise to scripts: `connector/docs/cli.md` documents them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import click

from ackq.errors import AckqError, TlsError, UnroutableError, status_of

# Version of every JSON document and line: it rises when a field is removed or changes its meaning,
# not with a new field.
JSON_VERSION: Final = 1


class ExitStatus(IntEnum):
    """Exit status of a command, which scripts may branch on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    DENIED = 5
    UNAVAILABLE = 6
    NOT_CONFIRMED = 7
    UNKNOWN = 8
    INTERRUPTED = 130
    BROKEN_PIPE = 141


# Exit statuses by the name of the gRPC status, which is the coarse kind of an error already.
_BY_KIND: Final = {
    "INVALID_ARGUMENT": ExitStatus.USAGE,
    "NOT_FOUND": ExitStatus.NOT_FOUND,
    "FAILED_PRECONDITION": ExitStatus.REFUSED,
    "ALREADY_EXISTS": ExitStatus.REFUSED,
    "ABORTED": ExitStatus.REFUSED,
    "UNIMPLEMENTED": ExitStatus.REFUSED,
    "UNAUTHENTICATED": ExitStatus.DENIED,
    "PERMISSION_DENIED": ExitStatus.DENIED,
    "UNAVAILABLE": ExitStatus.UNAVAILABLE,
    "RESOURCE_EXHAUSTED": ExitStatus.NOT_CONFIRMED,
    "UNKNOWN": ExitStatus.UNKNOWN,
}


# Exceptions, where the gRPC status is too coarse: the remedy that it suggests mends neither error.
_BY_CLASS: Final = {
    UnroutableError: ExitStatus.NOT_CONFIRMED,
    TlsError: ExitStatus.DENIED,
}


class Failure(click.ClickException):
    """The error that ends a command which did not do what it was asked for.

    Args:
        message: What happened, in one line.
        status: The exit status.
        code: The kind of error, for programs: a code of `ackq.errors`, or a word of the commands.
        fields: The objects that the message names.
    """

    def __init__(
        self,
        message: str,
        status: ExitStatus = ExitStatus.FAILED,
        code: str = "failed",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.fields = dict(fields or {})


def failure_of(error: BaseException, message: str = "") -> Failure:
    """The failure for an error; `message` replaces the error's own text."""
    if not isinstance(error, AckqError):
        return Failure(message or str(error))
    return Failure(message or error.message, exit_status(error), error.code, error.fields)


def exit_status(error: AckqError) -> ExitStatus:
    """The exit status of an error."""
    return next(
        (status for cls, status in _BY_CLASS.items() if isinstance(error, cls)),
        _BY_KIND.get(status_of(error), ExitStatus.FAILED),
    )


def interrupted() -> Failure:
    """The failure of a command that Ctrl-C ended."""
    return Failure("Interrupted.", ExitStatus.INTERRUPTED, "interrupted")


class PipeClosedError(click.ClickException):
    """The reader of the output closed the pipe: no error, and no message."""

    exit_code = ExitStatus.BROKEN_PIPE


def run(command: Callable[[], object], *, as_json: bool) -> int:
    """Runs a command and flushes its output; returns its exit status.

    A command whose stdout is closed (`>&-`) is not run: what it did would be reported nowhere.
    """
    _stand_in()
    warnings = _Warnings(as_json=as_json)
    log = logging.getLogger("ackq")
    log.addHandler(warnings)
    try:
        return _run(command, as_json=as_json)
    finally:
        log.removeHandler(warnings)


class _Warnings(logging.Handler):
    """Prints the client's warnings on stderr, in the form of the other output on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a warning; without a reader it is dropped, and the stream that logs it goes on."""
        text = record.getMessage()
        with suppress(OSError):
            click.echo(
                as_json_line("notice", {"warning": text}) if self._as_json else text, err=True
            )


class _Closed:
    """A standard input that is closed; its use ends the command."""

    def __getattr__(self, name: str) -> Any:
        raise Failure("Standard input is closed. Give a file or a pipe, or < /dev/null.")


def _stand_in() -> None:
    """Replaces closed standard streams, which Python gives as None."""
    # A missing one is None at run time only.
    streams: dict[str, Any] = vars(sys)
    if streams["stderr"] is None:
        streams["stderr"] = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if streams["stdin"] is None:
        streams["stdin"] = _Closed()
    out = streams["stdout"]
    if out is not None and out.errors == "strict":
        # A table shows what the encoding of the terminal does not have as `\u65e5`.
        out.reconfigure(errors="backslashreplace")


def _run(command: Callable[[], object], *, as_json: bool) -> int:
    try:
        if vars(sys)["stdout"] is None:
            raise Failure(
                "Standard output is closed, so nothing was done. Give > /dev/null if nobody reads"
                " the output."
            )
        result = command()
        sys.stdout.flush()
    except (PipeClosedError, BrokenPipeError):
        return _pipe_closed()
    except click.ClickException as error:
        return _end(error, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return _end(interrupted(), as_json=as_json)
    except OSError as error:
        what = error.filename or "The input or output"
        status = _end(Failure(f"{what}: {error.strerror or error}"), as_json=as_json)
        _discard_output()
        return status
    except UnicodeError as error:
        return _end(Failure(f"A text cannot be read or written: {error}"), as_json=as_json)
    # `--help` and `--version` give a status; a command gives nothing.
    return result if isinstance(result, int) else ExitStatus.DONE


def as_json_line(kind: str, value: Mapping[str, Any]) -> str:
    """A line of JSON for stderr: an error, a notice, or a summary."""
    return json.dumps({"version": JSON_VERSION, kind: value}, ensure_ascii=False)


def _end(error: click.ClickException, *, as_json: bool) -> int:
    """Prints an error; returns its exit status."""
    status = _status(error)
    if status is ExitStatus.INTERRUPTED and sys.stderr.isatty():
        click.echo(err=True)  # the terminal shows ^C on the line
    try:
        if as_json:
            click.echo(as_json_line("error", _described(error)), err=True)
        else:
            error.show()
    except BrokenPipeError:
        return _pipe_closed()
    except OSError:
        _discard_output()  # the status is all that is left to say
    return status


def _described(error: click.ClickException) -> dict[str, object]:
    code, fields = "usage", {}
    if isinstance(error, Failure):
        code, fields = error.code, error.fields
    return {
        "code": code,
        "message": error.format_message(),
        "fields": fields,
        "exit_status": int(_status(error)),
    }


def _status(error: click.ClickException) -> ExitStatus:
    return error.status if isinstance(error, Failure) else ExitStatus(error.exit_code)


def _pipe_closed() -> int:
    """The end of a command whose reader closed the pipe; returns the exit status."""
    _discard_output()
    return ExitStatus.BROKEN_PIPE


def _discard_output() -> None:
    """Redirects the output that Python flushes at its end to nowhere, if it cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
