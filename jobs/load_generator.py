"""Publishes messages at a steady rate, to see what a broker and its queries do under load.

Invariant: exit status 0 means that every message was confirmed, and without --endpoint that the
queue holds each of them once.

    python jobs/load_generator.py
    python jobs/load_generator.py --endpoint HOST:PORT --queue Q --rate 10000 --seconds 60
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackq.client import Admin, Broker
from kit import arguments, connection, publishing, reconciliation, say, workspace

QUEUE: Final = "load"
# Interval and maximum size of batches.
EVERY_S: Final = 0.05
MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 << 20


def main() -> int:
    """Runs the job; returns the exit status."""
    args = parse()
    job = demonstrate if args.endpoint is None else generate
    return workspace.run(
        "load-generator", lambda work: job(args, work), verbose=False, with_spark=False
    )


def parse(line: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = arguments.parser(
        "Publish messages at a steady rate and wait for every confirm. Without "
        "--endpoint: to a broker of its own, whose queue is then counted."
    )
    add = parser.add_argument
    add("--queue", help="the queue to publish to, which must exist")
    add("--rate", type=arguments.positive, default=10_000, help="messages per second (10000)")
    add("--seconds", type=arguments.positive, default=5, help="duration in seconds (5)")
    add("--bytes", type=arguments.positive, default=100, help="size of a body in bytes (100)")
    args = parser.parse_args(line)
    if (args.endpoint is None) != (args.queue is None):
        parser.error("--endpoint and --queue go together")
    return args


# --- the two ways to run ---


def demonstrate(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Loads a broker of its own, and counts its queue."""
    with workspace.own_broker(work) as (broker, admin):
        admin.declare_queue(QUEUE)
        load = publish(broker, QUEUE, args)
        ids = pa.Table.from_batches(admin.browse(QUEUE, columns=["message_id"]))["message_id"]
        ready = admin.queue(QUEUE).ready
    found = reconciliation.reconcile(
        equal={"published": load.published, "confirmed": load.confirmed, "ready": ready},
        zero={"duplicates": len(ids) - len(ids.unique())},
    )
    return reconciliation.conclude(found)


def generate(args: argparse.Namespace, _work: workspace.Workspace) -> int:
    """Loads a queue of a running broker; a nack or a return is an error."""
    broker = connection.broker(args)
    with Admin(broker) as admin:
        admin.queue(args.queue)  # checks that it exists
    load = publish(broker, args.queue, args)
    found = reconciliation.reconcile(
        equal={"published": load.published, "confirmed": load.confirmed}, zero={}
    )
    return reconciliation.conclude(found)


# --- the steps ---


def publish(broker: Broker, queue: str, args: argparse.Namespace) -> publishing.PublishCounts:
    """Publishes at the rate for the given time, and waits for all confirms."""
    say(f"Publishing {args.rate:,}/s of {args.bytes:,} bytes for {args.seconds} s ...")
    due = batches(args.rate, args.seconds, args.bytes)
    return publishing.publish(broker, due, routing_key=queue)


def batches(rate: int, seconds: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yields batches, each when its rows are due: `rate` times `seconds` rows in all."""
    run, started, made = secrets.token_hex(4), time.monotonic(), 0
    total, most = rate * seconds, max(1, min(MOST_ROWS, MOST_BYTES // size))
    while made < total:
        due = min(total, int((time.monotonic() - started + EVERY_S) * rate), made + most)
        if due > made:
            yield messages(run, made, due, size)
            made = due
        if made < total:
            time.sleep(max(0.0, started + made / rate - EVERY_S / 2 - time.monotonic()))


def messages(run: str, first: int, end: int, size: int) -> pa.RecordBatch:
    """The messages numbered from `first` to below `end`, with an id that no other run has."""
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), end - first))
    names = pc.add(numbers, first - 1).cast(pa.string())
    return pa.record_batch(
        {
            "body": pa.repeat(pa.scalar(b"x" * size), end - first),
            "message_id": pc.binary_join_element_wise(run, names, "/"),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
