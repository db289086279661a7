"""Spark's Kafka source and sink, and both in one query, as the anchors of ackq's.

Invariant: all queries have the same session, columns, rows per micro-batch and tasks; ackq syncs
confirmed messages, and each comparison says whether Kafka did.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator

import bench_sink
import bench_source
import harness
import kafka_sides
import relays
import spark_harness
from harness import Comparison
from kafka_sides import Kafka
from spark_harness import Load

HELP = "source, sink and relay as ratios to Spark's Kafka connector with a real broker"
PARTS = ("source", "sink", "relay")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_batches(parser)
    spark_harness.add_batch_bytes(parser)
    parser.add_argument(
        "--parts",
        type=lambda text: text.split(","),
        default=PARTS,
        help=f"which, separated by commas ({','.join(PARTS)})",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons per body size, size of a micro-batch, and part."""
    measured = {"source": sources, "sink": sinks, "relay": relays.compare}
    with kafka_sides.running() as kafka:
        for load in spark_harness.loads(args):
            for part in args.parts:
                yield from measured[part](kafka, load, endpoint, args.repetitions)


def sources(kafka: Kafka, load: Load, endpoint: str, repetitions: int) -> list[Comparison]:
    """Reads a queue and a topic into Spark's no-op sink."""
    with kafka.topic() as topic:
        kafka.fill(topic, load.total, load.size)
        return harness.compare(
            {
                "Kafka": functools.partial(kafka.source, topic, load.rows, load.batches),
                "ackq": functools.partial(
                    bench_source.from_queue,
                    kafka.spark,
                    load,
                    endpoint,
                    bench_source.COLUMNS,
                ),
            },
            harness.against("ackq", ["Kafka"], f"source, {load.name}"),
            repetitions,
        )


def sinks(kafka: Kafka, load: Load, endpoint: str, repetitions: int) -> list[Comparison]:
    """Writes rows made by the JVM to a queue and to topics."""
    made = bench_sink.made_rows(kafka.spark, load)
    anchors = kafka_sides.sinks(kafka, made, load.batches)
    ours = functools.partial(bench_sink.to_queue, kafka.spark, load, endpoint)
    return harness.compare(
        {**anchors, "ackq": ours},
        harness.against("ackq", anchors, f"sink, {load.name}"),
        repetitions,
    )
