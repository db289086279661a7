"""Synchronous publishers, from a lone one to many in several processes, against pika.

Invariant: either side has a publisher (connection) for each thread, in as many processes, and each
waits for its confirm before it publishes the next message.
"""

import contextlib
import itertools
from functools import partial

import cpu
import harness
import rabbitmq_sides
import sync_publishers
from harness import Figures, Measurement

HELP = "publishers that wait for each confirm, as ratios to pika with RabbitMQ"
OPTIONS = {"sizes": ([100], "body sizes"), "seconds": (5.0, "of each measurement")}
# Processes, and publishers in each.
POINTS = ((1, 1), (1, 8), (1, 40), (2, 40))


def run(args, endpoint):
    """Comparisons per body size and number of publishers, and how long a message waited."""
    with rabbitmq_sides.running() as port:
        # The address of a server, its name in `cpu`, and how to make a queue in it for a run.
        sides = {"ackq": (endpoint, cpu.ACKQ, partial(harness.queue, endpoint))}
        if port:
            theirs = partial(rabbitmq_sides.full_queue, port, 0, b"")
            sides = {"RabbitMQ": (str(port), rabbitmq_sides.NAME, theirs), **sides}
        for size, point in itertools.product(args.sizes, POINTS):
            number = "{} x {}".format(*point).removeprefix("1 x ")
            times = Figures(f"synchronous publishers: {number}, {size:,} B", "ms")
            of = partial(measure, times, args.seconds, size, point)
            yield from harness.compare(
                {name: partial(of, name, *side) for name, side in sides.items()},
                harness.against("ackq", list(sides)[:-1], times.title),
                args.reps,
            )
            yield times.without_warm_up()


def measure(times, seconds, size, point, client, address, server, queue_of_run):
    """Publishes for some seconds by all publishers; adds how long the messages waited."""
    processes, threads = point
    with queue_of_run() as queue, contextlib.ExitStack() as stack:
        start = partial(sync_publishers.opened, client, address, queue, size)
        publishers = [
            stack.enter_context(start(threads=threads, seconds=seconds)) for _ in range(processes)
        ]
        before = cpu.seconds(server)
        wall, waits = sync_publishers.run(*publishers)
        used = cpu.per_row(before, cpu.seconds(server), len(waits))
    times.add(harness.percentiles(waits, client))
    return Measurement(len(waits), {"wall": wall}, used)
