"""Source and sink with a broker that has TLS, users and metrics, against one without them.

Invariant: both brokers run at once, on the same disk, and serve the same queries in turn.
"""

import contextlib
import ssl
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import bench_sink
import bench_source
import cpu
import harness
import spark_harness
from harness import Pair

from tests.fakes.secured import secured_broker

HELP = "rows/s of source and sink with TLS, users and metrics, as a ratio to those without"
OPTIONS = spark_harness.BATCHES
FLOOR = 0.85
SERVER = "secured broker"
SCRAPE_S = 5.0


def run(args, endpoint):
    """Two comparisons per body size."""
    with spark_harness.session() as spark, _secured() as secured:
        for load in spark_harness.loads(args):
            for name, side in (("source", bench_source.from_queue), ("sink", bench_sink.to_queue)):
                yield from harness.compare(
                    {
                        "plain": partial(side, spark, load, endpoint),
                        "secured": partial(side, spark, load, **secured),
                    },
                    {f"secured {name}, {load.name}": Pair("secured", "plain", FLOOR)},
                    args.reps,
                )


@contextlib.contextmanager
def _secured():
    """Runs the broker, whose metrics are read all the while; yields what sides need of it."""
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        secured_broker(Path(folder), http=True) as secured,
    ):
        cpu.SERVERS[SERVER] = secured.broker.pid
        over, pool, security = threading.Event(), ThreadPoolExecutor(1), secured.security()
        token = Path(security.token_file).read_text(encoding="ascii").strip()
        request = urllib.request.Request(
            f"https://{secured.broker.http_endpoint}/metrics",
            headers={"Authorization": f"Bearer {token}"},
        )
        scraped = pool.submit(_scrape, request, secured.authority.ca, over)
        try:
            yield {"endpoint": secured.endpoint, "security": security, "server": SERVER}
        finally:
            over.set()
            pool.shutdown()
        # A scraper that failed would have made the broker look better than it is.
        assert scraped.result(), "the metrics were never read"


def _scrape(request, ca, over):
    """Reads the metrics as Prometheus does, but more often; returns the number of reads."""
    scrapes, trusting = 0, ssl.create_default_context(cafile=ca)
    while scrapes == 0 or not over.wait(SCRAPE_S):
        with urllib.request.urlopen(request, context=trusting) as answer:  # noqa: S310 - our own broker
            answer.read()
        scrapes += 1
    return scrapes
