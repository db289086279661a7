"""The ledger of several edges: three brokers behind one query, exactly once (S12, K14).

A publisher at each edge fills `in`; one Spark query reads `in` of all edges and writes `out` of all
edges, while edges and the driver are killed by SIGKILL, the driver also before any call of a
commit, so between its two halves. Between rounds the third edge is emptied and removed, or added
again. In the end `in` is empty and each message is in `out` of one edge, once.

    python -m tests.crash.edges --minutes 30 --seed 7
"""

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from ackq import client
from ackq.client import Admin
from ackq.spark import configure, connections
from ackq.spark.sink import edges as sink_edges
from ackq_broker import embedded
from tests.crash import harness, local_spark, points, standing
from tests.crash.driver_run import DriverRun
from tests.crash.harness import Publishing, in_queue, last_error, verdict

# Looks, prepares, the commit, finishes: the calls before which the driver dies.
CALLS = tuple(f"call{number}" for number in range(8))
DRAIN_S = 600


class Run(DriverRun):
    """One run: its edges, driver, schedule and figures."""

    def __init__(self, folder, seed, *, say=print):
        super().__init__(folder, seed, say)
        self.named = [0, 1, 2]

    def start_driver(self, *more):
        """Starts the query over the edges that are named now."""
        endpoint = ",".join(self.brokers[each].endpoint for each in self.named)
        self.launch("tests.crash.edges", "--query", endpoint, *more)

    def batches(self):
        """The number of batches that are in the commit log, or were."""
        return standing.newest(self.folder / "checkpoint" / "commits") + 1

    def working(self):
        return self.batches() > self.batches_before

    def step(self, pause_s):
        """One turn: a dead driver is replaced; once it works, something is killed."""
        time.sleep(self.random.uniform(0, 2 * pause_s))
        for publishing in self.publishings:
            assert publishing.failure is None, publishing.failure
        if self.driver.poll() is not None:
            if at := self.died_at():
                self.count(f"driver at {at}")
            else:
                self.note(f"the driver ended: {last_error(self.log)}")
            self.replace_driver()
        elif self.working():
            kind = self.random.choice(("edge", "edge", "call", "call", "driver", "task"))
            getattr(self, f"kill_{kind}")()

    def replace_driver(self):
        self.end_driver()
        self.start_driver()

    def kill_edge(self):
        number = self.random.randrange(3)
        self.brokers[number].kill()
        self.count(f"edge {number}")
        time.sleep(self.random.choice((0, 0.5, 3)))
        self.brokers[number].restart()

    def kill_call(self):
        """Arms a call of the next commit: the driver dies before it, then it is replaced."""
        self.arm_one(CALLS)

    def kill_driver(self):
        self.count("driver")
        self.replace_driver()

    def kill_task(self):
        self.kill_one("task")

    def change_edges(self):
        """Empties and removes the third edge, or adds it again."""
        self.end_driver()
        if len(self.named) == 3:
            for publishing in self.publishings:
                publishing.pause()
            self.drain(DRAIN_S)
            self.named = [0, 1]
        else:
            self.named = [0, 1, 2]
        for number in self.named:
            self.publishings[number].paused.clear()
        self.note(f"the query names the edges {self.named}")
        self.start_driver()

    def go(self, seconds, pause_s, kills=0, rounds=1):
        """Runs everything; returns the figures."""
        with ExitStack() as stack:
            self.brokers = [
                stack.enter_context(embedded(self.folder / name / "data")) for name in "abc"
            ]
            for broker in self.brokers:
                with Admin(broker.endpoint) as admin:
                    for queue in ("in", "out"):
                        admin.declare_queue(queue)
            self.publishings = [
                Publishing(number, broker.endpoint, 0.2)
                for number, broker in enumerate(self.brokers)
            ]
            for publishing in self.publishings:
                publishing.start()
            self.start_driver()
            try:
                for number in range(rounds):
                    end = time.monotonic() + seconds / rounds
                    wanted = kills * (number + 1) / rounds
                    while time.monotonic() < end or sum(self.kills.values()) < wanted:
                        self.step(pause_s)
                    if number + 1 < rounds:
                        self.change_edges()
                for publishing in self.publishings:
                    publishing.ended.set()
                    publishing.join(2 * DRAIN_S)
                    assert publishing.failure is None, publishing.failure
                self.end_driver()
                self.named = [0, 1, 2]
                self.drain(DRAIN_S)
                return self.figures()
            finally:
                self.end_driver()

    def figures(self):
        """The figures; `lost`, `doubled`, `strayed`, `left` and `unconfirmed` must be 0."""
        published = Counter(name for each in self.publishings for name in each.names)
        found = sum((in_queue(broker.endpoint, "out") for broker in self.brokers), Counter())
        return {
            "messages": len(published),
            "kills": sum(self.kills.values()),
            "batches": self.batches(),
            "drivers": self.drivers,
            "lost": len(published - found),
            "doubled": (found - published).total(),
            "strayed": len(found.keys() - published.keys()),
            "left": left(self.brokers),
            "unconfirmed": len(published) - sum(each.confirmed for each in self.publishings),
        }


WRONG = ("lost", "doubled", "strayed", "left", "unconfirmed")


def left(brokers):
    """The messages that are ready, unacked or delayed in `in`, or staged for `out`."""
    total = 0
    for broker in brokers:
        with Admin(broker.endpoint) as admin:
            queue = admin.queue("in")
            total += queue.ready + queue.unacked + queue.delayed + admin.queue("out").staged
    return total


# --- the driver program ---


class Writer(points.Writer):
    """The sink, whose driver dies before a call of the commit of the armed number."""

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        calls = iter(CALLS)
        both = {name: getattr(client, name) for name in ("prepare_batch", "commit_batch")}

        def counted(call):
            def counting(*args, **fields):
                points.passing(next(calls))
                return call(*args, **fields)

            return counting

        sink_edges._each = lambda names, one: [one(each) for each in list(names)]
        for name, call in both.items():
            setattr(client, name, counted(call))
        try:
            super().commit(messages, batchId)
        finally:
            for name, call in both.items():
                setattr(client, name, call)


class Source(points.Source):
    """The data source with a sink that dies between the calls of a commit."""

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's signature
        plain = super().streamWriter(schema, overwrite)
        return Writer(plain._options, plain._mapping)


def query(args):
    """Reads all edges and writes to all of them, endless or until all is drained."""
    builder = local_spark.builder("edges", "local[2,8]", {}, delta=False)
    spark = configure(builder, fast_workers=True).getOrCreate()
    spark.dataSource.register(Source)
    source = spark.readStream.format("ackq_with_points").options(
        endpoint=args.query, queue="in", session="edges", maxMessagesPerTrigger="300"
    )
    writer = source.load().select("body", "message_id").writeStream.format("ackq_with_points")
    writer = writer.options(endpoint=args.query, queue="out", shardBy="message_id")
    writer = writer.option("checkpointLocation", str(args.folder / "checkpoint"))
    if not args.drain:
        writer.trigger(processingTime="200 milliseconds").start().awaitTermination()
        return
    brokers = [connections.Broker(each) for each in args.query.split(",")]
    while True:
        writer.trigger(availableNow=True).start().awaitTermination()
        if not left(brokers):
            break
    spark.stop()


def main():
    """Runs the ledger, or its driver program."""
    parser = harness.parser(__doc__)
    parser.add_argument("--pause", type=float, default=2, help="seconds between two kills")
    parser.add_argument(
        "--rounds", type=int, default=6, help="the third edge leaves or returns between"
    )
    parser.add_argument("--query", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--drain", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.query:
        query(args)
        return
    folder = harness.new_folder("edges", args.seed)
    run = Run(folder, args.seed, say=harness.say)
    figures = run.go(args.minutes * 60, args.pause, rounds=args.rounds)
    print(figures, dict(run.kills))
    sys.exit(verdict(figures, WRONG, folder))


if __name__ == "__main__":
    main()
