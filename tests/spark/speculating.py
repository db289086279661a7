"""speculating.py ENDPOINT SOURCE TARGET CHECKPOINT ATTEMPTS: a relay with a task that does not end.

Invariant: the first attempt of partition 0 has passed all its rows to the sink before it hangs, so
the query ends only by another attempt. Every attempt leaves a file PARTITION-ATTEMPT in ATTEMPTS.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

endpoint, source, target, checkpoint, attempts = sys.argv[1:]


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    attempt = (context.partitionId(), context.attemptNumber())
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows:  # the opening batch has none
        Path(attempts, "{}-{}".format(*attempt)).touch()
        if attempt == (0, 0):
            threading.Event().wait()


spark = SparkSession.builder.getOrCreate()
columns = "body binary, message_id string"
reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=source, minPartitions=2)
rows = reader.schema(columns).load().mapInArrow(slow, columns)
rows.writeStream.format("ackq").options(
    endpoint=endpoint, queue=target, checkpointLocation=checkpoint
).trigger(availableNow=True).start().awaitTermination()
