"""The log on stderr, and the one-line error of a command that failed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from ackq.errors import AckqError
from ackq.text import printable
from ackq_broker.cli.explanations import explain

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
_REFUSED: Final = 2
_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141
# Libraries whose messages below `warning` are not logged.
_LIBRARIES: Final = ("aiohttp", "asyncio", "grpc")


class _LineFormatter(logging.Formatter):
    """Formats a record as one line; text from clients is escaped, so it cannot forge a line (A7).

    Times are UTC with milliseconds, as in `2013-01-01T00:00:00.000Z`. The lines of a traceback
    follow, each prefixed with a mark.
    """

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the library
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - of the library
        return "\n".join(
            f"  | {printable(each)}" for each in super().formatException(ei).split("\n")
        )


class _JsonFormatter(_LineFormatter):
    """Formats a record as a JSON object on a line (M3): common fields, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", "other"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        # The common fields come first; no field of an event has the name of one of them.
        return json.dumps(entry | getattr(record, "fields", {}), default=str)


def configure_log(level: str = "info", form: str = FORMATS[0]) -> None:
    """Sends the log to stderr: one line per event, tracebacks after their line, or in its JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if form == "json"
        else _LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Changes the lowest level that is logged from now on."""
    logging.getLogger().setLevel(level.upper())


def run(work: Coroutine[None, None, None]) -> None:
    """Runs work on an event loop; an error ends the program with one line."""
    configure_log()
    with refusing():
        asyncio.run(work)


@contextmanager
def refusing() -> Iterator[None]:
    """Ends the program with a one-line error when the code inside fails; also a decorator."""
    try:
        yield
    except BrokenPipeError:
        # The reader, `head` perhaps, has seen enough. Python writes what is left when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_BROKEN_PIPE)
    except KeyboardInterrupt:
        click.echo("ackq-broker: interrupted", err=True)
        sys.exit(_INTERRUPTED)
    except (AckqError, OSError) as error:
        refuse(error)


def refuse(error: Exception) -> NoReturn:
    """Ends the program with one line that names the cause."""
    click.echo(f"ackq-broker: {printable(explain(error))}", err=True)
    sys.exit(_REFUSED)


def set_at_eof(stop: asyncio.Event) -> None:
    """Sets an event of the running loop when standard input ends."""
    loop = asyncio.get_running_loop()

    def wait_for_eof() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_eof, name="stdin", daemon=True).start()
