"""How long a lone publisher waits beside one that publishes frames to many queues and topics.

Invariant: each is a process of its own, and waits for its confirm before it publishes again. The
broker's metrics are read all the while. No wait is longer than `MOST_MS` (I6).
"""

from concurrent.futures import ThreadPoolExecutor

import harness
import scale_sides
import sync_publishers
from harness import Figures

from ackq.client import Publisher

HELP = "waits of a lone publisher beside frames to many queues and with many routing keys: ms"
OPTIONS = {"sizes": ([100], "body sizes"), "seconds": (5.0, "of each measurement")}
MANY = 10_000
MOST_MS = 500


def run(args, endpoint):
    """Figures per body size: the lone publisher's waits, and the rows/s beside it."""
    many = scale_sides.queues(endpoint, MANY)
    for size in args.sizes:
        title = f"lone publisher beside frames of {scale_sides.BATCH_ROWS:,} rows, {size:,} B"
        waits, rates = Figures(title, "ms"), Figures(f"{title}: the frames", "rows/s")
        with (
            harness.queue(endpoint) as lone,
            harness.queue(endpoint) as one,
            scale_sides.topic(endpoint) as topic,
            harness.scraped(args.metrics),
        ):
            parts = {
                "alone": ("", ()),
                "1 queue": ("", [one]),
                f"{MANY:,} queues": ("", many),
                f"{MANY:,} topic keys": (topic, [f"eu.{number}" for number in range(MANY)]),
            }
            for _ in range(args.reps):
                for name, (exchange, keys) in parts.items():
                    seconds, rate = measure(endpoint, lone, exchange, keys, args.seconds, size)
                    found = harness.percentiles(seconds, name)
                    found[f"{name} longest"] = max(seconds) * 1000
                    waits.passed &= found[f"{name} longest"] <= MOST_MS
                    waits.add(found)
                    rates.add({name: rate} if keys else {})
                    print({each: round(value, 1) for each, value in found.items()}, flush=True)
        yield from (waits, rates)


def measure(endpoint, lone, exchange, keys, seconds, size):
    """The seconds that messages to the queue `lone` waited; rows/s of frames with the keys."""
    with (
        Publisher(endpoint, exchange=exchange, mandatory=True) as frames,
        sync_publishers.opened("ackq", endpoint, lone, size, seconds=seconds) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        batch = scale_sides.batch_of(keys, size) if keys else None
        if batch:
            frames.publish_batch(batch).result()  # opens the stream
        running, rows = pool.submit(sync_publishers.run, process), 0
        while batch and not running.done():
            rows += frames.publish_batch(batch).result()
        took, waits = running.result()
    return waits, rows / took
