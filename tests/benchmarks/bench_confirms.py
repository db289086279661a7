"""The classic comparison: persistent publishes one by one, in transactions and with confirms.

Invariant: all sides publish the same messages to a durable queue, and counted messages were synced
within the time counted. RabbitMQ's own two figures are added if it is installed; they have no
bound.

The gain of streaming is bounded against one synced round trip of this machine: against a commit for
each message the ratio falls when commits get faster, which is no loss.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Iterator

import ackq_sides
import harness
import rabbitmq_sides
import synced_round_trip
from harness import Comparison, Measurement, Pair

HELP = "10,000 persistent publishes one by one: streamed with confirms against waiting for each"
MESSAGES = 10_000
TRANSACTIONS = 1_000
# Multiple of one synced round trip, where that takes `ROUND_TRIP_S` or longer. A disk or a cache
# that answers sooner would require more messages/s than one thread of Python hands over one by one,
# so there the floor is lower in proportion.
FLOOR = 100
ROUND_TRIP_S = 0.002


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the number of transactions in a repetition."""
    parser.set_defaults(sizes=[100])
    parser.add_argument(
        "--transactions",
        type=int,
        default=TRANSACTIONS,
        help=f"commits in a repetition; rates are compared, so they may be fewer than the"
        f" {MESSAGES:,} publishes with confirms ({TRANSACTIONS:,})",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons for each body size; then RabbitMQ's, if it is installed."""
    if args.transactions < MESSAGES:
        print(
            f"The transactions of a repetition are {args.transactions:,} of the {MESSAGES:,}"
            f" publishes, and their rate is compared; --transactions {MESSAGES} runs them all.",
            flush=True,
        )
    with synced_round_trip.running() as port:
        for size in args.sizes:
            yield from _ackq(args, endpoint, port, bytes(size))
    with rabbitmq_sides.running() as port:
        for size in args.sizes if port else ():
            yield _rabbitmq(args, port, bytes(size))


def floor(round_trips: list[Measurement]) -> float:
    """The least gain of streaming over synced round trips of this duration."""
    seconds = statistics.median(each.seconds["wall"] / each.rows for each in round_trips)
    return FLOOR * min(1.0, seconds / ROUND_TRIP_S)


def _ackq(args: argparse.Namespace, endpoint: str, port: int, body: bytes) -> list[Comparison]:
    title = f"ackq, {len(body):,} B"
    commit, trip = "commit for each", synced_round_trip.NAME
    found = harness.compare(
        {
            commit: functools.partial(ackq_sides.commit_each, endpoint, args.transactions, body),
            trip: functools.partial(synced_round_trip.each, port, args.transactions, body, []),
            "streamed confirms": functools.partial(
                ackq_sides.confirms_streamed, endpoint, MESSAGES, body
            ),
        },
        {
            title: Pair("streamed confirms", commit),
            f"{title}, against a round trip": Pair("streamed confirms", trip),
        },
        args.repetitions,
    )
    found[1].floor = floor(found[1].anchors)
    return found


def _rabbitmq(args: argparse.Namespace, port: int, body: bytes) -> Comparison:
    return harness.interleave(
        Comparison(
            f"RabbitMQ, {len(body):,} B, beside it", "commit for each", "streamed confirms", None
        ),
        args.repetitions,
        functools.partial(rabbitmq_sides.commit_each, port, args.transactions, body),
        functools.partial(rabbitmq_sides.confirms_streamed, port, MESSAGES, body),
    )
