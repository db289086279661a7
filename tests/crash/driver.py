"""A Spark driver program that a crash test starts, kills and starts again.

It moves one queue into a Delta table or a second queue, and can be slowed, made to fail a task
once, or made to kill itself (JVM included) at a named point of the micro-batch protocol. The ledger
it prints at the end is read back from where the rows went.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from ackq.spark import configure

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--table", help="write to this Delta table")
    parser.add_argument("--target", help="write to this queue")
    parser.add_argument("--guarantee", default="exactly-once")
    parser.add_argument("--max-messages", default="500")
    parser.add_argument("--row-delay-ms", type=float, default=0)
    parser.add_argument("--fail-once", action="store_true", help="fail every task's first attempt")
    parser.add_argument(
        "--trace", type=Path, help="note the ids that each batch reads in this file"
    )
    parser.add_argument(
        "--die-in-batch", type=int, help="SIGKILL between offsets/N and commits/N of this batch"
    )
    return parser.parse_args()


def session(args):
    """A local Spark whose tasks may be retried."""
    builder = SparkSession.builder.appName("crash").master("local[2,3]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    if args.table:
        builder = (
            builder.config("spark.jars.packages", DELTA)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            )
            .config("spark.databricks.delta.snapshotPartitions", "1")
        )
    return configure(builder).getOrCreate()


def disturb(args):
    """A pass-through over Arrow batches: slow, failing first attempts, noting what it saw."""
    delay_s, fail, trace = args.row_delay_ms / 1000, args.fail_once, args.trace

    def through(batches):
        if fail and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("first attempts fail in this test")
        for batch in batches:
            time.sleep(delay_s * batch.num_rows)
            if trace:
                number = TaskContext.get().getLocalProperty("streaming.sql.batchId")
                with trace.open("a") as file:
                    file.write(f"{number} {json.dumps(batch['message_id'].to_pylist())}\n")
            yield batch

    return through


def die_in_batch(checkpoint, batch):
    """Kill this process group the moment a batch is in the offset log and not in the commit log."""

    def watch():
        offsets, commits = checkpoint / "offsets" / str(batch), checkpoint / "commits" / str(batch)
        while not offsets.exists():
            time.sleep(0.005)
        assert not commits.exists()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main():
    """Run until the queue is drained, then print the ledger."""
    args = arguments()
    spark = session(args)
    rows = (
        spark.readStream.format("ackq")
        .option("endpoint", args.endpoint)
        .option("queue", args.queue)
        .option("maxMessagesPerTrigger", args.max_messages)
        .load()
        .select("body", "message_id")
    )
    if args.row_delay_ms or args.fail_once or args.trace:
        rows = rows.mapInArrow(disturb(args), rows.schema)
    writer = rows.writeStream.option("checkpointLocation", str(args.checkpoint))
    writer = writer.trigger(availableNow=True).outputMode("append")
    if args.die_in_batch is not None:
        die_in_batch(args.checkpoint, args.die_in_batch)
    if args.table:
        query = writer.format("delta").start(args.table)
    else:
        query = (
            writer.format("ackq")
            .option("endpoint", args.endpoint)
            .option("queue", args.target)
            .option("guarantee", args.guarantee)
            .start()
        )
    query.awaitTermination()
    if args.table:
        ids = spark.read.format("delta").load(args.table).select("message_id").collect()
        print("LEDGER " + json.dumps([row[0] for row in ids]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
