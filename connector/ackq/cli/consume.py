"""`ackq consume`: consumes messages of a queue, prints them and settles them (C4, C10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import click

from ackq import client
from ackq.cli.context import Target, connected
from ackq.cli.failure import ExitStatus, Failure
from ackq.cli.output import plain_row, print_json_line, print_line, say
from ackq.cli.parameters import DURATION
from ackq.diagnosis import wording
from ackq.errors import (
    AckqError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StaleDeliveryTagError,
)
from ackq.outcomes import Outcome

if TYPE_CHECKING:
    from ackq.client import Admin, Message, Settlement

_SETTLES: dict[str, Callable[[Message, str], Settlement]] = {
    Outcome.ACCEPTED.value: lambda message, _: message.accept(),
    Outcome.FAILED.value: lambda message, reason: message.fail(reason),
    Outcome.REJECTED.value: lambda message, reason: message.reject(reason),
    Outcome.RELEASED.value: lambda message, _: message.release(),
}
_WITH_REASON = (Outcome.FAILED.value, Outcome.REJECTED.value)
_REQUEUES = (Outcome.FAILED.value, Outcome.RELEASED.value)


class _Tally:
    """Counts of the printed messages by what the broker answered to their settlement.

    Attributes:
        printed: Messages that were printed, and settled next.
        done: Those whose settlement took effect.
        stale: Those that were delivered again under another tag (C17).
        first: Why the first settlement had no effect, or is unknown.
    """

    def __init__(self) -> None:
        self.printed = self.done = self.stale = 0
        self.first: AckqError | None = None
        self._unknown = False

    def count(self, settlement: Future[int]) -> None:
        """Counts an answer; called on the channel's thread only."""
        error = settlement.exception()
        if not isinstance(error, AckqError):
            self.done += 1
            return
        self.stale += isinstance(error, StaleDeliveryTagError)
        self._unknown |= isinstance(error, OutcomeUnknownError)
        self.first = self.first or error

    def notice(self, outcome: str, *, ended: bool) -> dict[str, int]:
        """The counts for the line on stderr; `ended`: the command ended by itself."""
        left = self.printed - self.done - self.stale
        return {
            outcome: self.done,
            **({"redelivered": self.stale} if self.stale else {}),
            **({"unanswered": left} if left or not ended else {}),
        }

    def problem(self, outcome: str) -> Failure | None:
        """The failure of a command of which not all settlements took effect."""
        if self.first is None:
            return None
        code, fields = self.first.code, self.first.fields
        left = wording.count(self.printed - self.done, "printed message")
        if self._unknown:
            said = f"{left} perhaps not {outcome}: {self.first.message}"
            return Failure(said, ExitStatus.UNKNOWN, code, fields)
        said = f"{left} not {outcome}: {self.first.message}"
        return Failure(said, ExitStatus.NOT_CONFIRMED, code, fields)


@click.command()
@click.argument("queue")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    help="Stop after this number of messages; outcomes failed and released need it.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=DURATION,
    help="Stop when no message arrives for this time, such as 30s; default: wait for ever.",
)
@click.option(
    "--outcome",
    type=click.Choice(list(_SETTLES)),
    default=Outcome.ACCEPTED.value,
    show_default=True,
    help="Outcome with which a message is settled after it was printed; rejected needs a queue with"
    " a dead-letter queue.",
)
@click.option("--reason", default="", help="Reason of the outcome, for failed and rejected.")
@click.option("--jsonl", is_flag=True, help="Print each message as a line of JSON, as --json does.")
@click.option(
    "--prefetch",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of unsettled messages in flight.",
)
@connected
def consume(
    target: Target,
    *,
    queue: str,
    count: int | None,
    timeout_ms: int | None,
    outcome: str,
    reason: str,
    jsonl: bool,
    prefetch: int,
) -> None:
    """Consume QUEUE; print each body on a line, or with --jsonl each message as JSON.

    A message is settled after it was printed: a message that a broken pipe did not take stays in
    QUEUE. Outcomes failed and released take effect at the end, so that each message is printed
    once. The last line counts settlements that took effect: a message that was printed as the
    broker went away may be delivered, and printed, again. `ackq publish --jsonl` takes the lines
    that --jsonl prints.
    """
    if reason and outcome not in _WITH_REASON:
        raise click.UsageError("--reason needs --outcome failed or rejected.")
    if count is None and outcome in _REQUEUES:
        raise click.UsageError(f"--outcome {outcome} puts messages back: give --count as well.")
    with target.admin() as admin:
        found = admin.queue(queue)  # fails at once without a broker or without the queue
        if outcome == Outcome.REJECTED.value and not found.properties.dead_letter_queue:
            _check_rejectable(admin, queue)
    tally, ended = _Tally(), True

    def settle(message: Message) -> None:
        _SETTLES[outcome](message, reason).add_done_callback(tally.count)

    columns = _columns() if jsonl or target.as_json else ()
    timeout_s = None if timeout_ms is None else timeout_ms / 1000
    try:
        with client.Channel(target.broker, label="ackq consume") as channel:
            # Messages are put back last, so that none comes again: the prefetch has room for all.
            bound = count if count and (outcome in _REQUEUES or count < prefetch) else prefetch
            consumer = channel.consume(
                queue, mode="client", outcomes=[Outcome(outcome)], prefetch=bound
            )
            put_back: list[Message] = []
            try:
                for message in _messages(consumer.receive, count, timeout_s):
                    _print(message, columns)
                    tally.printed += 1
                    if outcome in _REQUEUES:
                        put_back.append(message)
                    else:
                        settle(message)
            finally:
                for message in put_back:
                    settle(message)
    except KeyboardInterrupt:
        ended = False
        raise
    finally:  # the channel is closed: it has waited for the answers
        noted = tally.notice(outcome, ended=ended)
        said = " ".join(f"{name}={number}" for name, number in noted.items())
        say(said, noted, as_json=target.as_json)
    problem = tally.problem(outcome)
    if problem is not None:
        raise problem


def _check_rejectable(admin: Admin, queue: str) -> None:
    """Refuses to reject messages of a queue without a dead-letter queue, which drops them (C4)."""
    if not any(link.queue == queue and link.reject_there for link in admin.links()):
        raise PreconditionFailedError(
            f"The queue '{queue}' has no dead-letter queue: its rejected messages would be lost."
            " Declare it with one; to remove messages, take --outcome accepted.",
            queue=queue,
        )


def _messages(
    receive: Callable[[float | None], Message | None], count: int | None, timeout_s: float | None
) -> Iterator[Message]:
    given = 0
    while (count is None or given < count) and (message := receive(timeout_s)) is not None:
        yield message
        given += 1


def _columns() -> Sequence[str]:
    """The columns of a message that JSON shows."""
    from ackq.wire.columns import DELIVERED  # noqa: PLC0415 - imports Arrow

    return tuple(DELIVERED)


def _print(message: Message, columns: Sequence[str]) -> None:
    """Prints a message as JSON with the given columns, or without columns its body on a line."""
    if columns:
        print_json_line(plain_row({name: getattr(message, name) for name in columns}))
    else:
        print_line(message.body)
