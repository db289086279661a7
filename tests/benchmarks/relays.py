"""A query from queue to queue, exactly once, and one from topic to topic.

Invariant: both move only bodies, in equal micro-batches.
"""

from __future__ import annotations

import functools
import os

import harness
import spark_harness
from harness import Comparison, Measurement
from kafka_sides import Kafka
from pyspark.sql import SparkSession
from spark_harness import Load


def compare(kafka: Kafka, load: Load, endpoint: str, repetitions: int) -> list[Comparison]:
    """Compares queue to queue with Kafka to Kafka, tuned, and with Kafka that syncs."""
    with kafka.topic() as topic:
        kafka.fill(topic, load.total, load.size)
        read = functools.partial(kafka.relay, topic, load.rows, load.batches)
        anchors = {
            "Kafka tuned": read,
            "Kafka tuned, flushed": functools.partial(read, flush=True),
        }
        return harness.compare(
            {**anchors, "ackq": functools.partial(relay, kafka.spark, load, endpoint)},
            harness.against("ackq", anchors, f"relay, {load.name}"),
            repetitions,
        )


def relay(spark: SparkSession, load: Load, endpoint: str) -> Measurement:
    """Moves a queue with exactly the rows of the run to another."""
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        harness.fill(endpoint, source, rows=load.total, size=load.size)
        options = {
            "endpoint": endpoint,
            "queue": source,
            "maxMessagesPerTrigger": load.rows,
            "maxBytesPerTrigger": "4g",
            "minPartitions": os.cpu_count() or 1,
        }
        reader = spark.readStream.format("ackq").options(**options).schema("body BINARY")
        return spark_harness.measure(
            reader.load(),
            sink="ackq",
            options={"endpoint": endpoint, "queue": target},
            trigger={"availableNow": True},
            batches=load.batches,
        )
