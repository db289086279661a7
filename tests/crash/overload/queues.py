"""Ten thousand queues: the broker's longest pause while all of them are in use.

One publisher spreads batches over all queues, another publishes one message at a time to a queue of
its own: its longest wait is the longest pause of the event loop, or the disk's.
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import pyarrow as pa

import ackq_broker
from ackq.client import Admin, Publisher
from tests.crash.overload import measured

ROWS = 1000


def add_arguments(parser):
    """Options for the number of queues and the duration."""
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--most-ms", type=float, default=500, help="the longest pause allowed")
    parser.add_argument(
        "--quiet", action="store_true", help="nothing is spread: the queues are there alone"
    )
    parser.add_argument("--seed", type=int, default=7, help=argparse.SUPPRESS)


def run(args):
    """Declares, publishes, scrapes; prints the figures, returns whether no pause was too long."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ackq_broker.embedded(Path(folder) / "data", http=True) as broker,
    ):
        began = time.monotonic()
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("single")
            for number in range(args.queues):
                admin.declare_queue(f"many.{number}")
        print(f"{args.queues} queues declared in {time.monotonic() - began:.1f} s")
        stop = threading.Event()
        others = [threading.Thread(target=_scrape, args=(broker.http_endpoint, stop))]
        if not args.quiet:
            others.append(threading.Thread(target=_spread, args=(args, broker.endpoint, stop)))
        for each in others:
            each.start()
        taken = []
        cpu = measured.cpu_s(broker.pid)
        began = time.monotonic()
        with Publisher(broker.endpoint, routing_key="single") as single:
            while time.monotonic() < began + args.seconds:
                at = time.perf_counter()
                single.publish(b"s").result(60)
                taken.append(time.perf_counter() - at)
                time.sleep(0.005)
        cpu = (measured.cpu_s(broker.pid) - cpu) / args.seconds
        stop.set()
        for each in others:
            each.join()
        memory = measured.resident_bytes(broker.pid) / measured.MIB
    cut = statistics.quantiles(taken, n=1000)
    print(
        f"{len(taken)} publishes, p50 {cut[499] * 1000:.1f} ms, p99 {cut[989] * 1000:.1f} ms,"
        f" p99.9 {cut[998] * 1000:.1f} ms, most {max(taken) * 1000:.1f} ms"
    )
    print(f"broker: {100 * cpu:.0f} % CPU, {memory:.0f} MiB")
    return max(taken) * 1000 <= args.most_ms


def _spread(args, endpoint, stop):
    """Publishes paced batches whose rows go to random queues."""
    rng = random.Random(args.seed)
    bodies = pa.array([os.urandom(100) for _ in range(ROWS)])
    with Publisher(endpoint) as publisher:
        while not stop.wait(0.1):
            keys = pa.array([f"many.{rng.randrange(args.queues)}" for _ in range(ROWS)])
            batch = pa.record_batch({"body": bodies, "routing_key": keys})
            publisher.publish_batch(batch).result(60)


def _scrape(endpoint, stop):
    """Scrapes metrics every five seconds, as a monitoring system does."""
    while not stop.wait(5):
        with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=30) as answer:
            answer.read()
