"""The fixed cost of a small micro-batch, queue to queue, against an in-memory source and sink.

Invariant: all queries run the same few rows per micro-batch in as many tasks, in one Spark.
"""

import statistics
from functools import partial

import arrow_baseline
import harness
import spark_harness
from harness import Comparison, Measurement, Pair

HELP = "time per small micro-batch, queue to queue, as a ratio to an in-memory source and sink"
OPTIONS = {"sizes": ([100], "body sizes"), "batches": (20, "timed micro-batches of a run")}
ROWS = 10
CEILING = 1.3
WHOLE = "triggerExecution"
# A query's first micro-batches start processes.
SKIP = 3


class FixedCost(Comparison):
    """Seconds per micro-batch, in total and by Spark's parts; here the ratio is of times."""

    @property
    def clocks(self):
        """Only the whole micro-batch, as a part of the anchor may take no time at all."""
        return [WHOLE]

    @property
    def passed(self):
        """Whether the ceiling is kept."""
        return statistics.median(self.ratios(WHOLE)) <= self.floor

    def ratios(self, clock):
        """Time of the subject divided by that of the anchor, per repetition."""
        pairs = zip(self.subjects, self.anchors, strict=True)
        return [subject.seconds[clock] / anchor.seconds[clock] for subject, anchor in pairs]

    def raw(self):
        """As in every comparison."""
        return {**super().raw(), "lower_is_better": True}

    def lines(self):
        """The result as a table: median [min..max], in milliseconds."""
        yield f"{self.title}: {len(self.anchors)} repetitions, median [min..max]"
        yield f"  {'ms per micro-batch':<20} {self.anchor:<24} {self.subject:<24} difference"
        for part in sorted(self.anchors[0].seconds, key=lambda name: name != WHOLE):
            theirs, ours = (
                [run.seconds[part] * 1000 for run in runs] for runs in (self.anchors, self.subjects)
            )
            more = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
            both = (f"{harness.spread(each, '.0f'):<24}" for each in (theirs, ours))
            yield f"  {part:<20} {' '.join(both)} {more:+.0f}"
        yield f"  {'ratio':<20} {harness.spread(self.ratios(WHOLE), '.2f')}"
        yield f"  ceiling {self.floor:g}: {'OK' if self.passed else 'ABOVE THE CEILING'}"


def run(args, endpoint):
    """Measures queue to queue."""
    with spark_harness.session() as spark:
        for size in args.sizes:
            load = spark_harness.Load(size, ROWS, args.batches, skipped=SKIP)
            yield from harness.compare(
                {
                    "in memory": partial(in_memory, spark, load),
                    "ackq": partial(queue_to_queue, spark, load, endpoint),
                },
                {f"micro-batch of {ROWS} rows, {size:,} B": Pair("ackq", "in memory", CEILING)},
                args.reps,
                FixedCost,
            )


def in_memory(spark, load):
    """Prepared rows, which are dropped; source and sink treat garbage collection as ackq does."""
    rows = arrow_baseline.read(spark, load, "body BINARY", ROWS, 1, lean="1")
    return _medians(rows, arrow_baseline.FORMAT, {"lean": "1"}, load)


def queue_to_queue(spark, load, endpoint):
    """Moves a queue with exactly the rows of the run."""
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        harness.fill(endpoint, source, rows=load.total, size=load.size)
        rows = spark_harness.read(spark, load, endpoint, source, "body BINARY", partitions=1)
        return _medians(rows, "ackq", {"endpoint": endpoint, "queue": target}, load)


def _medians(rows, sink, options, load):
    """The medians of Spark's parts over the micro-batches of a query."""
    timed = spark_harness.follow(rows, sink, options, load.batches, skip=SKIP)
    parts = {
        part: statistics.median(each["durationMs"][part] for each in timed) / 1000
        for part in timed[0]["durationMs"]
    }
    return Measurement(load.batches * ROWS, parts)
