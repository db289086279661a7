"""Spark's Kafka connector with a broker of its own, as the other side of a comparison.

Invariant: its queries have the same session, columns, rows per micro-batch and tasks as ackq's.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import kafka_server
import spark_harness
from harness import Measurement
from pyspark.sql import DataFrame, SparkSession

from tests import ivy

# Usual settings for throughput: batches of 256 KiB, for which a producer waits 5 ms.
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": str(256 * 1024)}
# The columns of `bench_source.COLUMNS`, by Kafka's names.
COLUMNS = ("value", "headers", "timestamp", "offset")
_NO_HEADERS = "cast(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
_NEVER_ENDS = {"processingTime": "1 second"}


@dataclass(frozen=True)
class Kafka:
    """A broker, and the Spark that reads it and writes to it."""

    spark: SparkSession
    endpoint: str
    topics: kafka_server.Topics

    @contextlib.contextmanager
    def topic(self, *, flush: bool = False) -> Iterator[str]:
        """A topic with one partition per core, deleted afterwards; yields its name."""
        name = f"benchmark-{uuid.uuid4().hex[:8]}"
        self.topics.create(name, partitions=os.cpu_count() or 1, flush=flush)
        yield name
        self.topics.delete(name)

    def fill(self, topic: str, rows: int, size: int) -> None:
        """Writes messages of a size to a topic."""
        made = self.spark.range(0, rows, 1, os.cpu_count() or 1)
        made.selectExpr(f"{spark_harness.body('id', size)} AS value").write.format("kafka").options(
            **{"kafka.bootstrap.servers": self.endpoint, **TUNED}, topic=topic
        ).save()

    def read(self, topic: str, rows: int) -> DataFrame:
        """A topic from its begin, with at most `rows` rows in a micro-batch."""
        options: dict[str, Any] = {
            "kafka.bootstrap.servers": self.endpoint,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": rows,
            "minPartitions": os.cpu_count() or 1,
            "includeHeaders": "true",
        }
        return self.spark.readStream.format("kafka").options(**options).load()

    def source(self, topic: str, rows: int, batches: int) -> Measurement:
        """Reads a filled topic into Spark's no-op sink."""
        return spark_harness.measure(
            self.read(topic, rows).select(*COLUMNS),
            sink="noop",
            options={},
            trigger={"availableNow": True},
            batches=batches,
            server=kafka_server.NAME,
        )

    def sink(
        self,
        rows: DataFrame,
        batches: int,
        settings: Mapping[str, str],
        *,
        flush: bool = False,
        trigger: Mapping[str, Any] = _NEVER_ENDS,
    ) -> Measurement:
        """Writes rows of body and headers to a new topic."""
        with self.topic(flush=flush) as topic:
            return spark_harness.measure(
                rows.selectExpr("body AS value", _NO_HEADERS),
                sink="kafka",
                options={"kafka.bootstrap.servers": self.endpoint, "topic": topic, **settings},
                trigger=dict(trigger),
                batches=batches,
                server=kafka_server.NAME,
            )

    def relay(self, topic: str, rows: int, batches: int, *, flush: bool = False) -> Measurement:
        """Reads a filled topic, and writes its bodies to another, tuned."""
        return self.sink(
            self.read(topic, rows).selectExpr("value AS body"),
            batches,
            TUNED,
            flush=flush,
            trigger={"availableNow": True},
        )


@contextlib.contextmanager
def running() -> Iterator[Kafka]:
    """A session with the connector, and a broker."""
    harness.NOTES["kafka"] = (
        f"{kafka_server.VERSION}, one node, acks=all; answers from the page cache, syncs nothing;"
        " 'flushed': flush.messages=1, syncs each batch it appends"
    )
    jars = ",".join(ivy.jars(*kafka_server.SPARK))
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-kafka-") as folder,
        spark_harness.session({"spark.jars": jars}) as spark,
        kafka_server.KafkaServer(Path(folder)) as server,
        contextlib.closing(kafka_server.Topics(spark._jvm, server.endpoint)) as topics,
    ):
        yield Kafka(spark, server.endpoint, topics)


def sinks(kafka: Kafka, rows: DataFrame, batches: int) -> dict[str, Any]:
    """The sides of a comparison of sinks: name -> its measurement."""
    write = functools.partial(kafka.sink, rows, batches)
    return {
        "Kafka": functools.partial(write, {}),
        "Kafka tuned": functools.partial(write, TUNED),
        "Kafka tuned, flushed": functools.partial(write, TUNED, flush=True),
    }
