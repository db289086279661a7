"""`ackq publish`: publishes a message, a file or lines, with confirms or as one transaction.

It prints the number of messages that were confirmed or committed (P3, P7, P13).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypedDict

import click

from ackq import limits
from ackq.cli.context import Target, connected
from ackq.cli.output import print_json
from ackq.client import Confirmation, Publisher, Security, TransactionalPublisher
from ackq.client.publishing.notifications import OnBlocked
from ackq.errors import AckqError, UnroutableError


class _Options(TypedDict):
    """Arguments of both publishers."""

    exchange: str
    routing_key: str
    mandatory: bool
    persistent: bool
    on_blocked: OnBlocked
    label: str
    security: Security | None


class _Fields(TypedDict):
    """Fields that every message gets."""

    headers: dict[str, str]
    message_id: str | None
    content_type: str | None
    ttl_ms: int | None


class Tally:
    """Counts of confirmed and failed publishes; keeps the first failure, not the futures."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.failed = 0
        self.first_failure: BaseException | None = None
        self._refused = ""

    def count(self, future: Future[Confirmation]) -> None:
        """Counts an answered publish; called on the publisher's thread only."""
        failure = future.exception() or future.result().returned
        if failure is None:
            self.confirmed += 1
        else:
            self.failed += 1
            self.first_failure = self.first_failure or failure

    def refuse(self, number: int, error: AckqError) -> None:
        """Notes the message that could not be published and ended the run."""
        self._refused = f"Message {number} and what follows it were not published: {error}"

    @property
    def problem(self) -> str:
        """What went wrong, in one line; empty: nothing."""
        if self.first_failure is None:
            return self._refused
        what = "returned" if isinstance(self.first_failure, UnroutableError) else "not confirmed"
        messages = "1 message" if self.failed == 1 else f"{self.failed} messages"
        return f"{messages} {what}: {self.first_failure} {self._refused}".rstrip()


@click.command()
@click.argument("routing_key")
@click.argument("body", required=False)
@click.option("--exchange", default="", help="Without it, ROUTING_KEY names the queue.")
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Publish the content of a file as one message.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--message-id", help="For the application.")
@click.option("--content-type", help="For the application.")
@click.option("--persistent/--no-persistent", default=True, show_default=True)
@click.option(
    "--ttl-ms", type=click.IntRange(1, limits.MAX_TTL_MS), help="Expire after so long unconsumed."
)
@click.option("--transaction", is_flag=True, help="All messages become visible together, or none.")
@connected
def publish(
    target: Target,
    *,
    routing_key: str,
    body: str | None,
    exchange: str,
    file: Path | None,
    headers: tuple[str, ...],
    message_id: str | None,
    content_type: str | None,
    persistent: bool,
    ttl_ms: int | None,
    transaction: bool,
) -> None:
    """Publish BODY, or with neither BODY nor --file each line of stdin, and wait for the confirms.

    A message that no queue wants is an error.
    """
    if body is not None and file is not None:
        raise click.UsageError("Give BODY or --file, not both.")
    fields: _Fields = {
        "headers": _headers(headers),
        "message_id": message_id,
        "content_type": content_type,
        "ttl_ms": ttl_ms,
    }
    options: _Options = {
        "exchange": exchange,
        "routing_key": routing_key,
        "mandatory": True,
        "persistent": persistent,
        "on_blocked": _print_blocked,
        "label": "ackq publish",
        "security": target.security,
    }
    with target.admin() as admin:
        admin.info()  # fails at once without a broker, not after a publisher's retries
    if transaction:
        _publish_together(target, options, _bodies(body, file), fields)
    else:
        _publish_each(target, options, _bodies(body, file), fields)


def _publish_each(
    target: Target, options: _Options, bodies: Iterator[bytes], fields: _Fields
) -> None:
    """Publishes with confirms; prints how many came."""
    tally = Tally()
    try:
        with Publisher(target.endpoint, **options) as out:
            for number, each in enumerate(bodies, start=1):
                try:
                    future = out.publish(each, **fields)
                except AckqError as error:
                    tally.refuse(number, error)
                    break  # what came before it still gets its answer
                future.add_done_callback(tally.count)
    except AckqError:
        if not tally.problem:
            raise
    except KeyboardInterrupt:
        click.echo(f"confirmed={tally.confirmed} unanswered={tally.failed}", err=True)
        raise
    _report(target, tally)


def _publish_together(
    target: Target, options: _Options, bodies: Iterator[bytes], fields: _Fields
) -> None:
    """Publishes in one transaction; an error states its outcome."""
    with TransactionalPublisher(target.endpoint, **options) as out, out.transaction():
        for number, each in enumerate(bodies, start=1):
            try:
                out.publish(each, **fields)
            except AckqError as error:
                raise click.ClickException(
                    f"Nothing was published, because of message {number}: {error}"
                ) from error
        count = out.uncommitted
    if target.as_json:
        print_json({"committed": count})
    else:
        click.echo(f"committed={count}")


def _print_blocked(reason: str | None) -> None:
    """Prints on stderr why the command waits: publishes are blocked, or go on (P14)."""
    click.echo(f"The broker takes no publishes: {reason}" if reason else "Going on.", err=True)


def _report(target: Target, tally: Tally) -> None:
    if target.as_json:
        print_json({"confirmed": tally.confirmed, "failed": tally.failed})
    else:
        click.echo(f"confirmed={tally.confirmed}")
    if tally.problem:
        raise click.ClickException(tally.problem)


def _bodies(body: str | None, file: Path | None) -> Iterator[bytes]:
    if body is not None:
        yield body.encode()
    elif file is not None:
        yield file.read_bytes()
    else:
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for (name, equals, _), text in zip(pairs, given, strict=True):
        if not name or not equals:
            raise click.UsageError(f"--header '{text}' is not NAME=VALUE.")
    return {name: value for name, _, value in pairs}
