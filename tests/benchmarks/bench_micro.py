"""The fixed cost of a small micro-batch, queue to queue, against an in-memory source and sink.

Invariant: all queries run the same few rows per micro-batch in as many tasks, in one Spark.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Iterator
from typing import Any

import arrow_baseline
import harness
import spark_harness
from harness import Comparison, Measurement
from pyspark.sql import DataFrame, SparkSession

HELP = "time per small micro-batch, queue to queue, as a ratio to an in-memory source and sink"
COLUMNS = "body BINARY"
CEILING = 1.3
WHOLE = "triggerExecution"
# A query's first micro-batches start processes.
SKIP = 3
# The parts of the anchor that each subject replaces by ackq: source, sink.
SUBJECTS = {"both": (True, True), "source": (True, False), "sink": (False, True)}


class FixedCost(Comparison):
    """Seconds per micro-batch, in total and by Spark's parts; here the ratio is of times."""

    @property
    def clocks(self) -> list[str]:
        """Only the whole micro-batch, as a part of the anchor may take no time at all."""
        return [WHOLE]

    @property
    def passed(self) -> bool:
        """Whether the ceiling, if there is one, is kept."""
        return self.floor is None or statistics.median(self.ratios(WHOLE)) <= self.floor

    def ratios(self, clock: str) -> list[float]:
        """Time of the subject divided by that of the anchor, per repetition."""
        pairs = zip(self.subjects, self.anchors, strict=True)
        return [subject.seconds[clock] / anchor.seconds[clock] for subject, anchor in pairs]

    def raw(self) -> dict[str, Any]:
        """As in every comparison."""
        return {**super().raw(), "lower_is_better": True}

    def lines(self) -> Iterator[str]:
        """The result as a table: median [min..max], in milliseconds."""
        yield f"{self.title}: {len(self.anchors)} repetitions, median [min..max]"
        yield f"  {'ms per micro-batch':<20} {self.anchor:<24} {self.subject:<24} difference"
        for part in sorted(self.anchors[0].seconds, key=lambda name: name != WHOLE):
            anchors, subjects = (
                [run.seconds[part] * 1000 for run in runs] for runs in (self.anchors, self.subjects)
            )
            more = [ours - theirs for ours, theirs in zip(subjects, anchors, strict=True)]
            ours, theirs = harness.spread(subjects, ".0f"), harness.spread(anchors, ".0f")
            yield f"  {part:<20} {theirs:<24} {ours:<24} {statistics.median(more):+.0f}"
        yield f"  {'ratio':<20} {harness.spread(self.ratios(WHOLE), '.2f')}"
        if self.floor is not None:
            yield f"  ceiling {self.floor:g}: {'OK' if self.passed else 'ABOVE THE CEILING'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    add = parser.add_argument
    add("--batches", type=int, default=20, help="timed micro-batches of a run (20)")
    add("--rows", type=int, default=10, help="rows of a micro-batch (10)")
    add("--partitions", type=int, default=1, help="tasks of a micro-batch (1)")
    add("--ceiling", type=float, default=CEILING, help=f"largest median ratio ({CEILING})")
    add("--plain", action="store_true", help="an anchor that leaves Spark's garbage collection be")
    add("--split", action="store_true", help="also replace source and sink one at a time")


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Measures queue to queue; if requested, also source and sink separately."""
    with spark_harness.session() as spark:
        for subject in SUBJECTS if args.split else ("both",):
            comparison = FixedCost(
                title=f"micro-batch of {args.rows} rows, {args.sizes[0]:,} B",
                anchor="in memory, plain" if args.plain else "in memory",
                subject=f"ackq {subject}",
                floor=args.ceiling if subject == "both" else None,
            )
            yield harness.interleave(
                comparison,
                args.repetitions,
                functools.partial(measure, spark, args, endpoint, (False, False)),
                functools.partial(measure, spark, args, endpoint, SUBJECTS[subject]),
            )


def measure(
    spark: SparkSession, args: argparse.Namespace, endpoint: str, ackq: tuple[bool, bool]
) -> Measurement:
    """Runs a query with ackq's source, sink, or both; returns medians over its micro-batches."""
    reads, writes = ackq
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        rows = from_queue(spark, args, endpoint, source) if reads else in_memory(spark, args)
        timed = spark_harness.follow(
            rows,
            sink="ackq" if writes else arrow_baseline.FORMAT,
            options={"endpoint": endpoint, "queue": target} if writes else anchor_options(args),
            trigger={"availableNow": True},
            batches=args.batches,
            skip=SKIP,
        )
    durations: list[dict[str, Any]] = [progress["durationMs"] for progress in timed]
    medians = {part: statistics.median(each[part] for each in durations) for part in durations[0]}
    return Measurement(
        sum(progress["numInputRows"] for progress in timed),
        {part: milliseconds / 1000 for part, milliseconds in medians.items()},
    )


def anchor_options(args: argparse.Namespace) -> dict[str, str]:
    """The options that source and sink of the anchor share."""
    return {} if args.plain else {"lean": "1"}


def in_memory(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """A stream of prepared rows in memory."""
    options = {
        "batches": args.batches + SKIP,
        "rowsPerBatch": args.rows,
        "rowsPerArrowBatch": args.rows,
        "bodyBytes": args.sizes[0],
        "partitions": args.partitions,
        **anchor_options(args),
    }
    return spark.readStream.format(arrow_baseline.FORMAT).options(**options).schema(COLUMNS).load()


def from_queue(
    spark: SparkSession, args: argparse.Namespace, endpoint: str, queue: str
) -> DataFrame:
    """A stream of a queue with exactly the rows of the run."""
    rows = args.rows * (args.batches + SKIP)
    harness.fill(endpoint, queue, rows=rows, size=args.sizes[0])
    options = {
        "endpoint": endpoint,
        "queue": queue,
        "maxMessagesPerTrigger": args.rows,
        "minPartitions": args.partitions,
    }
    return spark.readStream.format("ackq").options(**options).schema(COLUMNS).load()
