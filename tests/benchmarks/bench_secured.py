"""Source and sink with a broker that has TLS, users and metrics, against one without them.

Invariant: both brokers run at once, on the same disk, and serve the same queries in turn.
"""

import contextlib
import ssl
import tempfile
import urllib.request
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
        security = secured.security()
        token = Path(security.token_file).read_text(encoding="ascii").strip()
        request = urllib.request.Request(
            f"https://{secured.broker.http_endpoint}/metrics",
            headers={"Authorization": f"Bearer {token}"},
        )
        with harness.scraped(request, ssl.create_default_context(cafile=secured.authority.ca)):
            yield {"endpoint": secured.endpoint, "security": security, "server": SERVER}
