"""A streaming query over a network with faults, queue to queue; status 1 on any violation.

    python -m tests.crash.network.spark --minutes 10 --seed 1

Its source and its sink have a relay each, whose faults follow from the seed. A query that fails is
restarted from its checkpoint, and one that goes on is stopped now and then. In the end the network
is calm and the queue is drained: then each row is in the target once, and nothing is left in the
source (K1-K3). No call of the source or the sink may exceed its time-out.
"""

import argparse
import faulthandler
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException

from ackq.client import Admin
from ackq.spark import configure
from ackq_broker import embedded
from tests import prefork
from tests.crash import local_spark
from tests.crash.harness import fill, in_queue, unacked
from tests.crash.network import timeouts
from tests.crash.network.timed import FOLDER, RETRY_S, Source
from tests.fakes.faults import KINDS, Schedule
from tests.fakes.relay import Relay

SIDES = ("source", "sink")
# Errors that a query may fail with under faults: the time of its retries is over.
EXPECTED = {"BrokerUnavailableError"}
# A drain may fail on a connection that is half-open from before the calm.
DRAINS = 3
# Time after the faults: for the last ones to strike, a stop of the query, and the drains.
OVER_S = 900
AHEAD = 1_000
FRAME = 100
MAX_MESSAGES = (50, 200, 500)
# Batches of a query until it is stopped.
BATCHES = (1, 40)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="of faults, and one of each side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=KINDS, default=list(KINDS))
    return parser.parse_args()


class Run:
    """One queue that a query moves to another one, and the record of its messages."""

    def __init__(self, spark, endpoint, relays, folder, seed):
        self.spark = spark
        self.direct = endpoint
        self.relays = relays
        self.folder = folder
        self.rng = random.Random(f"{seed} query")
        self.names = []
        self.ended = Counter()
        self.begun = self._end = time.monotonic()
        self.wrong = []

    def go(self, seconds):
        """Runs faults for `seconds` and until each side met one; then calm until all is drained."""
        faulthandler.dump_traceback_later(seconds + OVER_S, exit=True)
        self._end = time.monotonic() + seconds
        while self._under_faults():
            self._live()
        for each in self.relays.values():
            each.calm()
        for _ in range(DRAINS):
            with self._failing():
                self._start(availableNow=True).awaitTermination()
                self._tell("drained")
            if self._left() == (0, 0):
                break
        faulthandler.cancel_dump_traceback_later()

    def _under_faults(self):
        struck = all(each.struck for each in self.relays.values())
        return time.monotonic() < self._end or not struck

    def _live(self):
        """Runs the query once: until it fails, has run a number of batches, or the run ends."""
        last = self._committed() + self.rng.randint(*BATCHES)
        with self._failing():
            query = self._start(processingTime="100 milliseconds")
            while self._under_faults() and self._committed() < last:
                self._fill()
                query.awaitTermination(0.2)
            query.stop()
            self._tell("stopped")

    @contextmanager
    def _failing(self):
        """Counts the error of a query that failed; an unexpected one is a violation."""
        try:
            yield
        except StreamingQueryException as failure:
            found = re.search(r"ackq\.errors\.(\w+)", str(failure))
            self._tell(found[1] if found else "failed otherwise")
            if found is None or found[1] not in EXPECTED:
                self.wrong.append(f"the query failed: {failure}")

    def _tell(self, how):
        """Counts and prints the way in which a query has ended."""
        self.ended[how] += 1
        took_s = time.monotonic() - self.begun
        print(f"{took_s:.0f} s: {how}, {self._committed()} batches in all", flush=True)

    def _committed(self):
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def _start(self, **trigger):
        side = {
            name: {"endpoint": relay.endpoint, "retryTimeout": f"{RETRY_S}s"}
            for name, relay in self.relays.items()
        }
        rows = self.spark.readStream.format("ackq_timed").options(
            **side["source"],
            queue="in",
            minPartitions="2",
            maxMessagesPerTrigger=str(self.rng.choice(MAX_MESSAGES)),
        )
        writer = rows.load().select("body", "message_id").writeStream.format("ackq_timed")
        writer = writer.options(**side["sink"], queue="out")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**trigger).start()

    def _fill(self):
        """Publishes more messages when there are few, without faults."""
        if sum(self._left()) < AHEAD:
            first = len(self.names)
            more = [f"m-{number:07d}" for number in range(first, first + FRAME)]
            fill(self.direct, "in", more, frame=FRAME)
            self.names += more

    def _left(self):
        return unacked(self.direct, "in")

    def check(self):
        """Compares the books with the broker; returns the violations."""
        found, left = in_queue(self.direct, "out"), self._left()
        lost, doubled = len(set(self.names) - found.keys()), found.total() - len(found)
        print(f"messages {len(self.names)}, lost {lost}, doubled {doubled}")
        if found != Counter(self.names) or left != (0, 0):
            self.wrong.append(f"lost {lost}, doubled {doubled}, left in the source {left}")
        for overdue in self.folder.glob("overdue-*"):
            if stacks := overdue.read_text():
                self.wrong.append(f"{overdue.name}: {stacks}")
        return self.wrong

    def told(self):
        """The figures, as lines."""
        yield f"batches {self._committed()}"
        yield f"queries {', '.join(f'{how} {n}' for how, n in sorted(self.ended.items()))}"
        for name, relay in self.relays.items():
            struck = Counter(fault.kind for _, fault in relay.struck)
            faults = ", ".join(f"{kind} {times}" for kind, times in sorted(struck.items()))
            yield f"{name}: connections {relay.accepted}, faults {len(relay.struck)}: {faults}"
        calls, longest = Counter(), Counter()
        for line in (self.folder / "calls").read_text().splitlines():
            what, took_s = line.split()
            calls[what] += 1
            longest[what] = max(longest[what], float(took_s))
        for what, n in sorted(calls.items()):
            yield f"{what}: {n} calls, longest {longest[what]:.1f} s"


def start_spark(folder):
    """The Spark session of this process: two tasks at once, each tried four times."""

    settings = {"spark.log.level": "OFF", "spark.local.dir": str(folder / "local")}
    prefork.use_python()
    spark = configure(local_spark.builder("network", "local[2,4]", settings)).getOrCreate()
    spark.dataSource.register(Source)
    return spark


def main():
    """Runs a query, and prints its figures and violations."""
    options = arguments()
    timeouts.lower()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        own = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
        os.environ.update(own, **{FOLDER: made})
        with embedded(folder / "data") as broker:
            with Admin(broker.endpoint) as admin:
                for queue in ("in", "out"):
                    admin.declare_queue(queue)
            relays = {
                side: Relay(broker.endpoint, Schedule(f"{options.seed} {side}", options.faults))
                for side in SIDES
            }
            with closing(relays["source"]), closing(relays["sink"]):
                spark = start_spark(folder)
                run = Run(spark, broker.endpoint, relays, folder, options.seed)
                run.go(options.minutes * 60)
                wrong = run.check()
                print(*run.told(), *(f"WRONG {each}" for each in wrong), sep="\n", flush=True)
                spark.stop()
    print(f"{'WRONG' if wrong else 'OK'}: seed {options.seed}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
