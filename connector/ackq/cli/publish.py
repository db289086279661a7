"""`ackq publish`: publishes a message, a file or lines, and counts what was confirmed (P3, P7)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import click

from ackq.cli.context import Target, connected
from ackq.cli.output import print_json
from ackq.client import Confirmation, Publisher
from ackq.errors import AckqError, UnroutableError


class Tally:
    """Counts the answers; keeps the first failure, not the futures.

    `problem` says in one line what went wrong; empty: nothing.
    """

    def __init__(self) -> None:
        self.confirmed = 0
        self.failed = 0
        self.first_failure: BaseException | None = None
        self._refused = ""

    def count(self, future: Future[Confirmation]) -> None:
        """Takes an answered publish; runs on the publisher's thread alone."""
        failure = future.exception() or future.result().returned
        if failure is None:
            self.confirmed += 1
        else:
            self.failed += 1
            self.first_failure = self.first_failure or failure

    def refuse(self, number: int, error: AckqError) -> None:
        """Takes a message that could not be published, which ended the publishing."""
        self._refused = f"Message {number} and what follows it were not published: {error}"

    @property
    def problem(self) -> str:
        """See above."""
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
) -> None:
    """Publish BODY, or with neither BODY nor --file each line of stdin, and wait for the confirms.

    A message that no queue wants is an error.
    """
    if body is not None and file is not None:
        raise click.UsageError("Give BODY or --file, not both.")
    pairs = _headers(headers)
    with target.admin() as admin:
        admin.info()  # no broker is told at once, not after all of a publisher's patience
    tally = Tally()
    publisher = Publisher(
        target.endpoint,
        exchange=exchange,
        routing_key=routing_key,
        mandatory=True,
        persistent=persistent,
        label="ackq publish",
        security=target.security,
    )
    try:
        with publisher as out:
            for number, each in enumerate(_bodies(body, file), start=1):
                try:
                    future = out.publish(
                        each, headers=pairs, message_id=message_id, content_type=content_type
                    )
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
