"""The client's ways to publish persistent messages, against waiting for the confirm of each.

Invariant: every counted message was confirmed, so synced, within the time counted.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator

import cpu
import harness
from harness import Comparison, Measurement

from ackq.client import Publisher

HELP = "messages/s of batch and single publishes as a ratio to one confirm at a time"
ONE_AT_A_TIME = 200
SINGLE = 20_000
BATCHED = 500_000
SMALL = (10, 100)
SMALL_BATCHES = 5_000
# The floors are set by the gain of streaming confirms elsewhere: a known broker with windowed
# confirms reached 10 times the rate of one at a time.
SINGLE_FLOOR = 10
BATCHED_FLOOR = 100

Publish = Callable[[Publisher, int], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds nothing: this benchmark has no options of its own."""


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons per body size: single publishes in a window, and batches of several sizes."""
    for size in args.sizes:
        for subject, publish, floor in (
            ("single publishes", single, SINGLE_FLOOR),
            ("batches", batched, BATCHED_FLOOR),
            *((f"batches of {rows}", functools.partial(small, rows), None) for rows in SMALL),
        ):
            yield harness.interleave(
                Comparison(f"publish, {size:,} B, {subject}", "one at a time", subject, floor),
                args.repetitions,
                functools.partial(_measure, endpoint, one_at_a_time, size),
                functools.partial(_measure, endpoint, publish, size),
            )


def one_at_a_time(publisher: Publisher, size: int) -> int:
    """Waits for each confirm before the next publish."""
    for _ in range(ONE_AT_A_TIME):
        publisher.publish(bytes(size), ack_immediately=True).result()
    return ONE_AT_A_TIME


def single(publisher: Publisher, size: int) -> int:
    """Publishes one by one and collects the confirms as they come; the client makes the frames."""
    answers = [publisher.publish(bytes(size)) for _ in range(SINGLE)]
    publisher.flush()
    for answer in answers:
        answer.result()
    return SINGLE


def batched(publisher: Publisher, size: int) -> int:
    """Publishes prepared frames."""
    frame = harness.bodies(harness.rows_per_frame(size), size)
    answers = [publisher.publish_batch(frame) for _ in range(BATCHED // frame.num_rows)]
    publisher.flush()
    return sum(answer.result() for answer in answers)


def small(rows: int, publisher: Publisher, size: int) -> int:
    """Publishes small batches; the client makes the frames."""
    batch = harness.bodies(rows, size)
    answers = [publisher.publish_batch(batch) for _ in range(SMALL_BATCHES)]
    publisher.flush()
    return sum(answer.result() for answer in answers)


def _measure(endpoint: str, publish: Publish, size: int) -> Measurement:
    with harness.queue(endpoint) as queue, Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        before = cpu.seconds()
        started = time.perf_counter()
        rows = publish(publisher, size)
        wall = time.perf_counter() - started
        return Measurement(rows, {"wall": wall}, cpu.per_row(before, cpu.seconds(), rows))
