"""speculating.py ENDPOINT SOURCE TARGET CHECKPOINT ATTEMPTS: two queries with a task that hangs.

The first writes the messages of SOURCE to TARGET, the second rejects them in TARGET.

Invariant: the first attempt of partition 0 has sent all its rows before it hangs, and another
attempt of partition 0 waits for that, so a query ends only by another attempt, and only once both
have sent all rows. Every attempt leaves a file QUERY-PARTITION-ATTEMPT in ATTEMPTS.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from ackq.spark import settle

endpoint, source, target, checkpoint, attempts = sys.argv[1:]


def slow(name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A pass-through that hands rows on, and then hangs in the first attempt of partition 0."""

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = (context.partitionId(), context.attemptNumber())
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        if rows:  # the opening batch has none
            Path(attempts, "{}-{}-{}".format(name, *attempt)).touch()
            if attempt == (0, 0):
                threading.Event().wait()
            while attempt[0] == 0 and not Path(attempts, f"{name}-0-0").exists():
                time.sleep(0.05)

    return hand_on


spark = SparkSession.builder.getOrCreate()


def messages(queue: str, columns: str) -> DataFrame:
    reader = spark.readStream.format("ackq").schema(columns)
    return reader.options(endpoint=endpoint, queue=queue, minPartitions=2).load()


def write() -> DataStreamWriter:
    columns = "body binary, message_id string"
    rows = messages(source, columns).mapInArrow(slow("write"), columns)
    return rows.writeStream.format("ackq").options(endpoint=endpoint, queue=target)


def reject() -> DataStreamWriter:
    def act(rows: DataFrame, _batch_id: int) -> None:
        settle(rows.mapInArrow(slow("settle"), columns), "rejected", endpoint=endpoint)

    columns = "delivery_tag long"
    return messages(target, columns).writeStream.foreachBatch(act)


for query in (write, reject):
    place = f"{checkpoint}/{query.__name__}"
    query().trigger(availableNow=True).start(checkpointLocation=place).awaitTermination()
