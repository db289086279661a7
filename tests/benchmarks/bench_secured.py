"""Source and sink with a broker that has TLS, users and metrics, against one without them.

Invariant: both brokers run at once, on the same disk, and serve the same queries in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import ssl
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import bench_sink
import bench_source
import cpu
import harness
import spark_harness
from harness import Comparison

from ackq.client import Security
from tests.fakes.secured import secured_broker

HELP = "rows/s of source and sink with TLS, users and metrics, as a ratio to those without"
FLOOR = 0.85
SERVER = "secured broker"
SCRAPE_S = 5.0


class Server(NamedTuple):
    """A measured broker, and the security of its clients."""

    endpoint: str
    security: Security | None = None
    cpu: str = cpu.ACKQ


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_batches(parser)
    parser.add_argument("--floor", type=float, default=FLOOR, help=f"least median ratio ({FLOOR})")


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Two comparisons per body size."""
    with spark_harness.session() as spark, _secured() as secured:
        brokers = {"plain": Server(endpoint), "secured": secured}
        for load in spark_harness.loads(args):
            sides = {
                "source": functools.partial(
                    bench_source.from_queue, spark, load, columns=bench_source.COLUMNS
                ),
                "sink": functools.partial(bench_sink.to_queue, spark, load),
            }
            for name, side in sides.items():
                yield from harness.compare(
                    {
                        kind: functools.partial(
                            side,
                            endpoint=each.endpoint,
                            security=each.security,
                            server=each.cpu,
                        )
                        for kind, each in brokers.items()
                    },
                    {f"secured {name}, {load.name}": harness.Pair("secured", "plain", args.floor)},
                    args.repetitions,
                )


@contextlib.contextmanager
def _secured() -> Iterator[Server]:
    """The broker with TLS, users and metrics; its metrics are read all the while."""
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        secured_broker(Path(folder), http=True) as secured,
    ):
        assert secured.broker is not None
        cpu.SERVERS[SERVER] = secured.broker.pid
        over = threading.Event()
        pool = ThreadPoolExecutor(1)
        token = Path(secured.security().token_file).read_text(encoding="ascii").strip()
        request = urllib.request.Request(
            f"https://{secured.broker.http_endpoint}/metrics",
            headers={"Authorization": f"Bearer {token}"},
        )
        scraped = pool.submit(_scrape, request, secured.authority.ca, over)
        try:
            yield Server(secured.endpoint, secured.security(), SERVER)
        finally:
            over.set()
            pool.shutdown()
        # A scraper that failed would have made the broker look better than it is.
        assert scraped.result(), "the metrics were never read"


def _scrape(request: urllib.request.Request, ca: str, over: threading.Event) -> int:
    """Reads the metrics as Prometheus does, but more often; returns the number of reads."""
    scrapes = 0
    trusting = ssl.create_default_context(cafile=ca)
    while not over.wait(SCRAPE_S):
        with urllib.request.urlopen(request, context=trusting) as answer:  # noqa: S310 - our own broker
            answer.read()
        scrapes += 1
    return scrapes
