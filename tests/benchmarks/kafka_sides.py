"""Spark's Kafka connector with a broker of its own, as the other side of a comparison.

Invariant: its queries have the same session, columns, rows per micro-batch and tasks as ackq's.
"""

import contextlib
import os
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

import harness
import kafka_server
import spark_harness
from pyspark.sql import SparkSession

from tests import ivy

# Usual settings for throughput: batches of 256 KiB, for which a producer waits 5 ms.
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": str(256 * 1024)}
# The columns of `bench_source.COLUMNS`, by Kafka's names.
COLUMNS = ("value", "headers", "timestamp", "offset")
_NO_HEADERS = "cast(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"


@dataclass(frozen=True)
class Kafka:
    """A broker, and the Spark that reads it and writes to it."""

    spark: SparkSession
    endpoint: str
    topics: kafka_server.Topics

    @contextlib.contextmanager
    def topic(self, *, flush=False):
        """A topic with one partition per core, deleted afterwards; yields its name."""
        name = f"benchmark-{uuid.uuid4().hex[:8]}"
        self.topics.create(name, partitions=os.cpu_count() or 1, flush=flush)
        yield name
        self.topics.delete(name)

    def fill(self, topic, rows, size):
        """Writes messages of a size to a topic."""
        made = self.spark.range(0, rows, 1, os.cpu_count() or 1)
        made = made.selectExpr(f"{spark_harness.body('id', size)} AS value")
        options = {"kafka.bootstrap.servers": self.endpoint, "topic": topic, **TUNED}
        made.write.format("kafka").options(**options).save()

    def read(self, topic, rows):
        """A topic from its begin, with at most `rows` rows in a micro-batch."""
        options = {
            "kafka.bootstrap.servers": self.endpoint,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": rows,
            "minPartitions": os.cpu_count() or 1,
            "includeHeaders": "true",
        }
        return self.spark.readStream.format("kafka").options(**options).load()

    def source(self, topic, rows, batches):
        """Reads a filled topic into Spark's no-op sink."""
        read = self.read(topic, rows).select(*COLUMNS)
        return spark_harness.measure(read, "noop", {}, batches, server=kafka_server.NAME)

    def sink(self, rows, batches, settings=(), *, flush=False, ends=False):
        """Writes rows of body and headers to a new topic."""
        with self.topic(flush=flush) as topic:
            return spark_harness.measure(
                rows.selectExpr("body AS value", _NO_HEADERS),
                "kafka",
                {"kafka.bootstrap.servers": self.endpoint, "topic": topic, **dict(settings)},
                batches,
                ends=ends,
                server=kafka_server.NAME,
            )

    def relay(self, topic, rows, batches, *, flush=False):
        """Reads a filled topic, and writes its bodies to another, tuned."""
        read = self.read(topic, rows).selectExpr("value AS body")
        return self.sink(read, batches, TUNED, flush=flush, ends=True)


@contextlib.contextmanager
def running():
    """A session with the connector, and a broker."""
    harness.NOTES["kafka"] = (
        f"{kafka_server.VERSION}, one node, acks=all; answers from the page cache, syncs nothing;"
        " 'flushed': flush.messages=1, syncs each batch it appends"
    )
    jars = ",".join(ivy.jars(*kafka_server.SPARK))
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-kafka-") as folder,
        spark_harness.session({"spark.jars": jars}) as spark,
        kafka_server.running(Path(folder)) as endpoint,
        contextlib.closing(kafka_server.Topics(spark._jvm, endpoint)) as topics,
    ):
        yield Kafka(spark, endpoint, topics)
