"""sorting.py ENDPOINT SOURCE TARGET CHECKPOINT: rejects messages with odd ids, writes the others.

It names its session to `settle`, so it is the same program with and without Spark Connect.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from ackq.spark import settle

endpoint, source, target, checkpoint = sys.argv[1:]
ODD = "cast(right(message_id, 1) as int) % 2 = 1"


def sort(rows: DataFrame, batch_id: int) -> None:
    settle(rows.filter(ODD), "rejected", reason="odd", endpoint=endpoint, session="sorting")
    rows.filter(f"not {ODD}").select("body", "message_id").write.format("ackq").mode(
        "append"
    ).options(endpoint=endpoint, queue=target, txnAppId="sorting", txnVersion=batch_id).save()


spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=source, session="sorting")
reader.load().writeStream.foreachBatch(sort).trigger(availableNow=True).start(
    checkpointLocation=checkpoint
).awaitTermination()
