"""speculating.py ENDPOINT SOURCE TARGET CHECKPOINT ATTEMPTS HOW: a query whose task hangs.

HOW is `write`, to write the messages of SOURCE to TARGET, or `settle`, to reject them.

Invariant: the first attempt of partition 0 has sent all its rows before it hangs, so the query ends
only by another attempt. Every attempt leaves a file PARTITION-ATTEMPT in ATTEMPTS.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from ackq.spark import settle

endpoint, source, target, checkpoint, attempts, how = sys.argv[1:]


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
reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=source, minPartitions=2)


def write() -> DataStreamWriter:
    columns = "body binary, message_id string"
    rows = reader.schema(columns).load().mapInArrow(slow, columns)
    return rows.writeStream.format("ackq").options(endpoint=endpoint, queue=target)


def reject() -> DataStreamWriter:
    def act(rows: DataFrame, _batch_id: int) -> None:
        settle(rows.mapInArrow(slow, columns), "rejected", endpoint=endpoint)

    columns = "delivery_tag long"
    return reader.schema(columns).load().writeStream.foreachBatch(act)


query = (write if how == "write" else reject)()
query.trigger(availableNow=True).start(checkpointLocation=checkpoint).awaitTermination()
