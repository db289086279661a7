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
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import ackq_broker
from ackq.client import Admin, Publisher
from kit import jobkit
from kit.jobkit import Workspace, say

QUEUE: Final = "load"
# A batch is what is due since the last one, within these.
EVERY_S: Final = 0.05
MOST_ROWS: Final = 10_000
REPORT_EVERY_S: Final = 1.0


@dataclass
class Load:
    """What was published and confirmed so far, and how long the last confirm took."""

    published: int = 0
    confirmed: int = 0
    confirm_s: float = 0.0


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    args = parse(arguments)
    job = demonstrate if args.endpoint is None else generate
    return jobkit.run(
        "load-generator", lambda work: job(args, work), verbose=False, with_spark=False
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = argparse.ArgumentParser(
        description="Publish messages at a steady rate and wait for every confirm. Without "
        "--endpoint: to a broker of its own, whose queue is then counted.",
        epilog=jobkit.EXIT_STATUS,
    )
    add = parser.add_argument
    add("--endpoint", metavar="HOST:PORT", help="a running broker; without it the job starts one")
    add("--queue", help="the queue to publish to; it is there already")
    add("--rate", type=jobkit.positive, default=10_000, help="messages per second (10000)")
    add("--seconds", type=jobkit.positive, default=5, help="for so long (5)")
    add("--bytes", type=jobkit.positive, default=100, help="of a body (100)")
    args = parser.parse_args(arguments)
    if (args.endpoint is None) != (args.queue is None):
        parser.error("--endpoint and --queue go together")
    return args


# --- the two ways to run ---


def demonstrate(args: argparse.Namespace, work: Workspace) -> int:
    """Load a broker of this process, and count its queue."""
    with (
        ackq_broker.embedded(data=work.folder / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        say(f"A broker is up at {broker.endpoint}.")
        admin.declare_queue(QUEUE)
        load = publish(broker.endpoint, QUEUE, args)
        batches = admin.browse(QUEUE, columns=["message_id"])
        ids = pa.concat_tables(map(_table, batches))["message_id"]
        ready = admin.queue(QUEUE).ready
    line, agree = jobkit.reconcile(
        equal={"published": load.published, "confirmed": load.confirmed, "ready": ready},
        zero={"duplicates": len(ids) - len(ids.unique())},
    )
    say(line)
    return 0 if agree else 1


def generate(args: argparse.Namespace, _work: Workspace) -> int:
    """Load a queue of a running broker; a nack or a return is an error."""
    with Admin(args.endpoint) as admin:
        admin.queue(args.queue)  # that it is there
    load = publish(args.endpoint, args.queue, args)
    line, agree = jobkit.reconcile(
        equal={"published": load.published, "confirmed": load.confirmed}, zero={}
    )
    say(line)
    return 0 if agree else 1


# --- the steps ---


def publish(endpoint: str, queue: str, args: argparse.Namespace) -> Load:
    """Publish for as long as was asked, and wait for every confirm.

    A broker that is slower than the rate slows the job down: the publisher's window fills.

    Raises:
        AckqError: A message was nacked (P8) or returned (P7).
    """
    load, waiting = Load(), deque[tuple[Future[int], float]]()
    say(f"Publishing {args.rate:,}/s of {args.bytes:,} bytes for {args.seconds} s ...")
    started = reported = time.monotonic()
    with Publisher(endpoint, routing_key=queue, mandatory=True) as publisher:
        for batch in batches(args.rate, args.seconds, args.bytes):
            waiting.append((publisher.publish_batch(batch), time.monotonic()))
            load.published += batch.num_rows
            _gather(load, waiting)
            if time.monotonic() - reported >= REPORT_EVERY_S:
                reported = time.monotonic()
                say(
                    f"  published {load.published:>11,}, confirmed {load.confirmed:>11,}, the last"
                    f" within {load.confirm_s * 1000:6.1f} ms"
                )
        publisher.flush()
    load.confirmed += sum(answer.result() for answer, _ in waiting)
    seconds = time.monotonic() - started
    say(f"{load.confirmed:,} in {seconds:.1f} s: {load.confirmed / seconds:,.0f}/s.")
    return load


def batches(rate: int, seconds: int, size: int) -> Iterator[pa.RecordBatch]:
    """What is due, whenever it is due: `rate` times `seconds` rows in all."""
    run, started, made = secrets.token_hex(4), time.monotonic(), 0
    total = rate * seconds
    while made < total:
        due = min(total, int((time.monotonic() - started + EVERY_S) * rate), made + MOST_ROWS)
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


def _gather(load: Load, waiting: deque[tuple[Future[int], float]]) -> None:
    """Counts the confirms that have come."""
    while waiting and waiting[0][0].done():
        answer, sent = waiting.popleft()
        load.confirmed += answer.result()
        load.confirm_s = time.monotonic() - sent


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


if __name__ == "__main__":
    sys.exit(main())
