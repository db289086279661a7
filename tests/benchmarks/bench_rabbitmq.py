"""The client message by message, against pika with a real RabbitMQ.

Invariant: both sides publish persistent messages to a durable queue and settle each, over one
connection, from one thread of the application.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator

import ackq_sides
import harness
import rabbitmq_sides
import synced_round_trip
from harness import Figures, Measurement, Pair, Result

HELP = "publishing and consuming message by message as ratios to pika with RabbitMQ"
STREAMED = 50_000
WAITED = 1_000
ACK_EVERY = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.set_defaults(sizes=[100])


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Result]:
    """Comparisons per body size; without RabbitMQ there are none."""
    with rabbitmq_sides.running() as port, synced_round_trip.running() as sync_port:
        for size in args.sizes if port else ():
            body = bytes(size)
            yield from streams(args, endpoint, port, body)
            yield from one_by_one(args, endpoint, (port, sync_port), body)


def streams(
    args: argparse.Namespace, endpoint: str, port: int, body: bytes
) -> Iterator[harness.Comparison]:
    """Comparisons that do not wait for each answer, and one of a commit for each message."""
    of = functools.partial
    ours, theirs = ackq_sides, rabbitmq_sides
    rows: dict[str, tuple[Callable[[], Measurement], Callable[[], Measurement]]] = {
        "publish, confirms streamed": (
            of(ours.confirms_streamed, endpoint, STREAMED, body),
            of(theirs.confirms_streamed, port, STREAMED, body),
        ),
        "publish, a commit for each": (
            of(ours.commit_each, endpoint, WAITED, body),
            of(theirs.commit_each, port, WAITED, body),
        ),
        "receive() and accept each": (
            of(ours.receive, endpoint, STREAMED, body, 1),
            of(theirs.consume, port, STREAMED, body, 1),
        ),
        "callback and accept each": (
            of(ours.callback, endpoint, STREAMED, body),
            of(theirs.consume, port, STREAMED, body, 1),
        ),
        f"receive() and accept {ACK_EVERY} at once": (
            of(ours.receive, endpoint, STREAMED, body, ACK_EVERY),
            of(theirs.consume, port, STREAMED, body, ACK_EVERY),
        ),
    }
    for title, (subject, anchor) in rows.items():
        comparison = harness.Comparison(f"{title}, {len(body):,} B", "RabbitMQ", "ackq", None)
        yield harness.interleave(comparison, args.repetitions, anchor, subject)


def one_by_one(
    args: argparse.Namespace, endpoint: str, ports: tuple[int, int], body: bytes
) -> Iterator[Result]:
    """Comparisons that wait for each confirm, with a synced round trip; and their durations."""
    port, sync_port = ports
    times = Figures(f"publish, waiting for each confirm, {len(body):,} B", "ms")
    sides = {
        "RabbitMQ": functools.partial(rabbitmq_sides.confirm_each, port, WAITED, body),
        "synced round trip": functools.partial(synced_round_trip.each, sync_port, WAITED, body),
        "ackq": functools.partial(ackq_sides.confirm_each, endpoint, WAITED, body),
    }
    pairs = {
        f"{times.title}: ackq / {anchor}": Pair("ackq", anchor)
        for anchor in ("RabbitMQ", "synced round trip")
    }
    yield from harness.compare(
        {name: functools.partial(_timed, times, name, side) for name, side in sides.items()},
        pairs,
        args.repetitions,
    )
    yield times.without_warm_up()


def _timed(times: Figures, name: str, side: Callable[[list[float]], Measurement]) -> Measurement:
    """Measures a side, and adds the percentiles of a repetition."""
    seconds: list[float] = []
    measured = side(seconds)
    times.add(harness.percentiles(seconds, name))
    return measured
