"""A query from queue to queue, exactly once, and one from topic to topic.

Invariant: both move only bodies, in equal micro-batches.
"""

from __future__ import annotations

import argparse
import functools
import os

import harness
import spark_harness
from harness import Comparison, Measurement
from kafka_sides import Kafka
from pyspark.sql import SparkSession


def compare(kafka: Kafka, args: argparse.Namespace, size: int, endpoint: str) -> list[Comparison]:
    """Compares queue to queue with Kafka to Kafka, tuned, and with Kafka that syncs."""
    rows = spark_harness.rows_per_batch(size)
    with kafka.topic() as topic:
        kafka.fill(topic, rows * (args.batches + 1), size)
        read = functools.partial(kafka.relay, topic, rows, args.batches)
        anchors = {
            "Kafka tuned": read,
            "Kafka tuned, flushed": functools.partial(read, flush=True),
        }
        return harness.compare(
            {**anchors, "ackq": functools.partial(relay, kafka.spark, args, size, endpoint)},
            harness.against("ackq", anchors, f"relay, {size:,} B"),
            args.repetitions,
        )


def relay(spark: SparkSession, args: argparse.Namespace, size: int, endpoint: str) -> Measurement:
    """Moves a queue with exactly the rows of the run to another."""
    rows = spark_harness.rows_per_batch(size)
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        harness.fill(endpoint, source, rows=rows * (args.batches + 1), size=size)
        options = {
            "endpoint": endpoint,
            "queue": source,
            "maxMessagesPerTrigger": rows,
            "maxBytesPerTrigger": "1g",
            "minPartitions": os.cpu_count() or 1,
        }
        reader = spark.readStream.format("ackq").options(**options).schema("body BINARY")
        return spark_harness.measure(
            reader.load(),
            sink="ackq",
            options={"endpoint": endpoint, "queue": target},
            trigger={"availableNow": True},
            batches=args.batches,
        )
