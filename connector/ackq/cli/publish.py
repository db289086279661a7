"""`ackq publish`: publishes a message, a file, lines or JSON lines, confirmed or transactional.

It prints the number of messages that were confirmed or committed (P3, P7, P13), and the line number
of each JSON line that was not.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ackq import client
from ackq.cli.context import Target, connected
from ackq.cli.failure import ExitStatus, Failure, exit_status, failure_of
from ackq.cli.json_lines import properties
from ackq.cli.output import print_json, say
from ackq.cli.parameters import RATE, Duration
from ackq.cli.progress import bar, paced
from ackq.diagnosis import wording
from ackq.errors import (
    AckqError,
    ClosedError,
    InvalidArgumentError,
    OutcomeUnknownError,
    UnroutableError,
)

if TYPE_CHECKING:
    from ackq.client import Confirmation

# Maximum number of unpublished lines that are named; the rest are only counted.
_MOST_NAMED: Final = 1_000
# Properties that are set on the publisher for all of its messages, which is faster.
_SHARED: Final = frozenset(("exchange", "routing_key", "persistent"))


class _Line(NamedTuple):
    """A line of input to publish: its number from 1, and its bytes as read."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Source:
    """The input of the command, and how its lines become messages."""

    body: str | None
    file: Path | None
    jsonl: bool
    options: dict[str, Any]

    @property
    def defaults(self) -> dict[str, Any]:
        """The options that all messages share, which are set on the publisher."""
        shared = () if self.jsonl else _SHARED
        return {name: value for name, value in self.options.items() if name in shared}

    @property
    def total_bytes(self) -> int | None:
        """The size of the input, if it is a regular file."""
        if self.file is not None:
            return self.file.stat().st_size
        status = os.fstat(sys.stdin.fileno())
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    @property
    def takes_long(self) -> bool:
        """Whether the input is lines that nobody types."""
        if self.body is not None or (self.file is not None and not self.jsonl):
            return False
        return self.file is not None or not sys.stdin.isatty()

    def arguments(self, line: _Line) -> dict[str, Any]:
        """The arguments of `publish` for a line: an option overrides the field of that name."""
        if not self.jsonl:
            own = {name: value for name, value in self.options.items() if name not in _SHARED}
            return {"body": line.data, **own}
        found = properties(line.data)
        headers = {**found.get("headers", {}), **self.options.get("headers", {})}
        return {**found, **self.options, **({"headers": headers} if headers else {})}


class Tally:
    """Counts of confirmed and failed publishes; keeps the first failure, not the futures.

    Args:
        name_line: Called with the number and the failure of each message that was not published,
            the first `_MOST_NAMED` of them; None: nothing is called.
    """

    def __init__(self, name_line: Callable[[int, BaseException], None] | None = None) -> None:
        self.sent = 0
        self.answered = 0
        self.confirmed = 0
        self.failed = 0
        self.lines: list[int] = []
        self.first_failure: BaseException | None = None
        self._unanswered = 0
        self._unknown: OutcomeUnknownError | None = None
        self._refused: AckqError | None = None
        self._refused_number = 0
        self._name_line = name_line

    def count(self, number: int, future: Future[Confirmation]) -> None:
        """Counts an answered publish; called on the publisher's thread only."""
        failure = future.exception() or future.result().returned
        if isinstance(failure, ClosedError | OutcomeUnknownError):
            self._unanswered += 1
        else:
            self.answered += 1
        if failure is None:
            self.confirmed += 1
        else:
            self.fail(number, failure)

    def fail(self, number: int, failure: BaseException) -> None:
        """Counts a message that was not published."""
        self.failed += 1
        self.first_failure = self.first_failure or failure
        if isinstance(failure, OutcomeUnknownError):
            self._unknown = self._unknown or failure
        if self._name_line is not None and len(self.lines) < _MOST_NAMED:
            self.lines.append(number)
            self._name_line(number, failure)

    def refuse(self, number: int, error: AckqError) -> None:
        """Notes the message that could not be published and ended the run."""
        self._refused, self._refused_number = error, number

    def notice(self) -> dict[str, int]:
        """The counts for the line on stderr of a run that Ctrl-C ended."""
        return {
            "confirmed": self.confirmed,
            "failed": self.failed - self._unanswered,
            "unanswered": self.sent - self.answered,
        }

    @property
    def problem(self) -> Failure | None:
        """The failure that ends the command; None if everything was published."""
        refused = ""
        if self._refused is not None:
            refused = (
                f"Message {self._refused_number} and the messages after it were not published:"
                f" {self._refused}"
            )
        if self.first_failure is None:
            return _not_published(self._refused, refused) if self._refused is not None else None
        # Its status says to look before anything is published again.
        failure = self._unknown or self.first_failure
        what = "returned" if isinstance(failure, UnroutableError) else "not confirmed"
        failed = wording.count(self.failed, "message")
        said = f"{failed} {what}: {failure} {refused}".rstrip()
        return _not_published(failure, said)


@click.command()
@click.argument("routing_key", required=False)
@click.argument("body", required=False)
@click.option("--exchange", help="Exchange; without it, ROUTING_KEY is the queue's name.")
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Publish the content of a file as one message; with --jsonl, each of its lines.",
)
@click.option(
    "--jsonl",
    is_flag=True,
    help="Each line is a message with its properties as JSON, as `ackq consume --jsonl` prints"
    " them. A bad line is reported, and the lines after it are published.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of the messages; repeatable.",
)
@click.option("--message-id", help="Message id, for the application.")
@click.option("--content-type", help="Content type of the bodies, for the application.")
@click.option(
    "--persistent/--no-persistent",
    default=None,
    help="Whether messages survive a restart of the broker; default: yes, or as a JSON line says.",
)
@click.option(
    "--ttl",
    "ttl_ms",
    type=Duration(least_ms=1),
    help="Time after which a message expires if it was not consumed: 5m, 2h.",
)
@click.option(
    "--transaction",
    is_flag=True,
    help="Publish in one transaction: all messages become visible together, or none.",
)
@click.option("--rate", "per_second", type=RATE, help="Maximum number of messages per second.")
@connected
def publish(
    target: Target,
    *,
    routing_key: str | None,
    body: str | None,
    file: Path | None,
    jsonl: bool,
    headers: tuple[str, ...],
    transaction: bool,
    per_second: float | None,
    **given: Any,
) -> None:
    """Publish BODY, or with neither BODY nor --file each line of stdin, and wait for the confirms.

    A message that is routed to no queue is an error. With --jsonl an option, or ROUTING_KEY,
    overrides the field of the same name.
    """
    if body is not None and file is not None:
        raise click.UsageError("Give BODY or --file, not both.")
    if body is not None and jsonl:
        raise click.UsageError("Give BODY or --jsonl, not both.")
    if routing_key is None and not jsonl:
        raise click.UsageError("Missing argument 'ROUTING_KEY'.")
    options = {name: value for name, value in given.items() if value is not None}
    options |= {"routing_key": routing_key} if routing_key is not None else {}
    options |= {"headers": _headers(headers)} if headers else {}
    with target.admin() as admin:
        admin.info()  # fails at once without a broker, not after a publisher's retries
    source = _Source(body, file, jsonl, options)
    lines = _lines(source)
    if per_second is not None:
        lines = paced(lines, per_second)
    if transaction:
        _publish_together(target, source, lines)
    else:
        _publish_each(target, source, lines)


def _publish_each(target: Target, source: _Source, lines: Iterator[_Line]) -> None:
    """Publishes the lines with confirms; prints the number of confirms."""
    tally = Tally(partial(_name_line, target) if source.jsonl else None)
    shown = source.takes_long and not target.as_json and sys.stderr.isatty()
    drawn = bar(source.total_bytes, lambda: tally.confirmed) if shown else nullcontext(_ignore)
    settings = _settings(target, source)
    try:
        with drawn as read, client.Publisher(target.broker, **settings) as out:
            for line in lines:
                try:
                    future = out.publish(**source.arguments(line))
                except InvalidArgumentError as error:
                    if not source.jsonl:
                        tally.refuse(line.number, error)
                        break  # the messages before it still get their answers
                    tally.fail(line.number, error)
                except AckqError as error:
                    tally.refuse(line.number, error)
                    break
                else:
                    tally.sent += 1
                    future.add_done_callback(partial(tally.count, line.number))
                read(len(line.data))
    except AckqError:
        if tally.problem is None:
            raise
    except KeyboardInterrupt:
        # A publisher that Ctrl-C ends before it is closed warns; the notice below has all facts.
        warnings.filterwarnings("ignore", "A publisher was dropped", RuntimeWarning)
        noted = tally.notice()
        said = " ".join(f"{name}={number}" for name, number in noted.items())
        say(said, noted, as_json=target.as_json)
        raise
    _report(target, source, tally)


def _publish_together(target: Target, source: _Source, lines: Iterator[_Line]) -> None:
    """Publishes the lines in one transaction; an error states its outcome."""
    settings = _settings(target, source)
    with client.TransactionalPublisher(target.broker, **settings) as out, out.transaction():
        for line in lines:
            try:
                out.publish(**source.arguments(line))
            except AckqError as error:
                said = f"Nothing was published, because of message {line.number}: {error}"
                raise _not_published(error, said) from error
        count = out.uncommitted
    target.answer({"committed": count}, f"committed={count}")


def _settings(target: Target, source: _Source) -> dict[str, Any]:
    """The arguments that both kinds of publisher take."""

    def say_blocked(reason: str | None) -> None:
        """Reports that publishes are blocked, with the reason, or that they go on (P14)."""
        said = (
            f"The broker blocks publishers: {reason}"
            if reason
            else "The broker takes publishes again."
        )
        say(said, {"blocked": reason or ""}, as_json=target.as_json)

    return {
        **source.defaults,
        "mandatory": True,
        "on_blocked": say_blocked,
        "label": "ackq publish",
    }


def _not_published(error: BaseException, said: str) -> Failure:
    """The failure of a publish; the status of an invalid message is NOT_CONFIRMED as well."""
    failure = failure_of(error, said)
    if isinstance(error, AckqError) and exit_status(error) is ExitStatus.USAGE:
        failure.status = ExitStatus.NOT_CONFIRMED
    return failure


def _name_line(target: Target, number: int, failure: BaseException) -> None:
    """Reports on stderr a line that was not published, and why."""
    code = failure.code if isinstance(failure, AckqError) else "failed"
    noted = {"line": number, "code": code, "message": str(failure)}
    say(f"line {number}: {failure}", noted, as_json=target.as_json)


def _report(target: Target, source: _Source, tally: Tally) -> None:
    if target.as_json:
        counts: dict[str, object] = {"confirmed": tally.confirmed, "failed": tally.failed}
        print_json(counts | ({"failed_lines": sorted(tally.lines)} if source.jsonl else {}))
    else:
        click.echo(f"confirmed={tally.confirmed}")
    if tally.problem is not None:
        raise tally.problem


def _lines(source: _Source) -> Iterator[_Line]:
    if source.body is not None:
        yield _Line(1, os.fsencode(source.body))  # the bytes of the command line
    elif source.file is None:
        yield from _split(sys.stdin.buffer, source)
    elif source.jsonl:
        with source.file.open("rb") as opened:
            yield from _split(opened, source)
    else:
        yield _Line(1, source.file.read_bytes())


def _split(opened: Any, source: _Source) -> Iterator[_Line]:
    for number, line in enumerate(opened, start=1):
        data = line.removesuffix(b"\n").removesuffix(b"\r")
        if data or not source.jsonl:
            yield _Line(number, data)


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for (name, equals, _), text in zip(pairs, given, strict=True):
        if not name or not equals:
            raise click.UsageError(f"--header '{text}' is not NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def _ignore(_size: int) -> None:
    """Ignores the progress when no bar is shown."""
