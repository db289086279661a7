"""dying.py ENDPOINT SOURCE TARGET CHECKPOINT AGAIN: moves messages; an executor dies in batch 1.

Invariant: the executor is killed by the first attempt of partition 0, which has handed on rows.
Every later attempt of a task leaves a file BATCH-PARTITION in AGAIN.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

endpoint, source, target, checkpoint, again = sys.argv[1:]
COLUMNS = "body binary, message_id string"


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hands rows on; kills the JVM of its executor after the first ones, in one task."""
    context = TaskContext.get()
    assert context is not None
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    task = f"{batch_id}-{context.partitionId()}"
    if context.attemptNumber():
        Path(again, task).touch()
    for batch in batches:
        yield batch
        if task == "1-0" and not context.attemptNumber():
            next(each for each in psutil.Process().parents() if each.name() == "java").kill()


spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("ackq").schema(COLUMNS).options(endpoint=endpoint, queue=source)
rows = reader.options(session="dying", maxMessagesPerTrigger=40, minPartitions=4).load()
writer = rows.mapInArrow(dying, COLUMNS).writeStream.format("ackq").trigger(availableNow=True)
query = writer.options(endpoint=endpoint, queue=target, shardBy="message_id").start(
    checkpointLocation=checkpoint
)
query.awaitTermination()
