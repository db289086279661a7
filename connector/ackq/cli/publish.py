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
    """Counts the answers; keeps the first failure, not the futures."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.failed = 0
        self.first_failure: BaseException | None = None

    def count(self, future: Future[Confirmation]) -> None:
        """Takes an answered publish; runs on the publisher's thread alone."""
        failure = future.exception() or future.result().returned
        if failure is None:
            self.confirmed += 1
        else:
            self.failed += 1
            self.first_failure = self.first_failure or failure


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
            for each in _bodies(body, file):
                future = out.publish(
                    each, headers=pairs, message_id=message_id, content_type=content_type
                )
                future.add_done_callback(tally.count)
    except AckqError:
        if tally.first_failure is None:
            raise
    _report(target, tally)


def _report(target: Target, tally: Tally) -> None:
    if target.as_json:
        print_json({"confirmed": tally.confirmed, "failed": tally.failed})
    else:
        click.echo(f"confirmed={tally.confirmed}")
    if tally.first_failure is not None:
        why = "returned" if isinstance(tally.first_failure, UnroutableError) else "not confirmed"
        raise click.ClickException(f"{tally.failed} messages {why}: {tally.first_failure}")


def _bodies(body: str | None, file: Path | None) -> Iterator[bytes]:
    if body is not None:
        yield body.encode()
    elif file is not None:
        yield file.read_bytes()
    else:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for (name, equals, _), text in zip(pairs, given, strict=True):
        if not name or not equals:
            raise click.UsageError(f"--header '{text}' is not NAME=VALUE.")
    return {name: value for name, _, value in pairs}
