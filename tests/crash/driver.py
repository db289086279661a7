"""A Spark driver program that a crash test starts, kills and restarts.

It moves a queue into a second queue, then one into a Delta table, or only one of these. It can be
slowed down, or made to kill itself (JVM included) between the two logs of a micro-batch. The ledger
that it prints at the end is read back from the table.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path

from pyspark import TaskContext

from ackq.spark import configure
from tests import prefork
from tests.crash import local_spark

SINKS = ("target", "table")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path, help="a folder of a folder each")
    parser.add_argument("--target", help="QUEUE:TARGET, write the first queue to the second")
    parser.add_argument("--table", help="QUEUE:PATH, write the queue to this Delta table")
    parser.add_argument("--max-messages", default="500")
    parser.add_argument("--row-delay-ms", type=float, default=0)
    parser.add_argument(
        "--trace", required=True, type=Path, help="note the ids that each batch reads in this file"
    )
    parser.add_argument(
        "--die-in",
        default="",
        help="SINK:BATCH, SIGKILL between offsets/N and commits/N of this batch",
    )
    return parser.parse_args()


def session(args):
    """A local Spark session whose tasks may be retried."""
    prefork.use_python()
    return configure(
        local_spark.builder("crash", "local[2,3]", {}, delta=bool(args.table))
    ).getOrCreate()


def disturb(args, sink):
    """A slow pass-through over Arrow batches that records the ids it saw.

    It ends no batch in which the driver dies.
    """
    delay_s, trace, dying = args.row_delay_ms / 1000, args.trace, args.die_in

    def through(batches):
        for batch in batches:
            time.sleep(delay_s * batch.num_rows)
            number = TaskContext.get().getLocalProperty("streaming.sql.batchId")
            if dying == f"{sink}:{number}":
                threading.Event().wait()
            with trace.open("a") as file:
                file.write(f"{sink} {number} {json.dumps(batch['message_id'].to_pylist())}\n")
            yield batch

    return through


def die_in_batch(checkpoint, batch):
    """Kills this process group once a batch is in the offset log and not in the commit log."""

    def watch():
        offsets, commits = checkpoint / "offsets" / str(batch), checkpoint / "commits" / str(batch)
        while not offsets.exists():
            time.sleep(0.005)
        assert not commits.exists()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def move(spark, args, sink, queue, where):
    """Runs a query until its queue is drained."""
    rows = (
        spark.readStream.format("ackq")
        .option("endpoint", args.endpoint)
        .option("queue", queue)
        .option("maxMessagesPerTrigger", args.max_messages)
        .load()
        .select("body", "message_id")
    )
    rows = rows.mapInArrow(disturb(args, sink), rows.schema)
    checkpoint = args.checkpoint / sink
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True).outputMode("append")
    dying, _, batch = args.die_in.partition(":")
    if dying == sink:
        die_in_batch(checkpoint, int(batch))
    if sink == "table":
        query = writer.format("delta").start(where)
    else:
        query = (
            writer.format("ackq").option("endpoint", args.endpoint).option("queue", where).start()
        )
    query.awaitTermination()


def main():
    """Runs until the queues are drained, then prints the ledger."""
    args = arguments()
    spark = session(args)
    for sink in SINKS:
        if way := getattr(args, sink):
            queue, where = way.split(":", 1)
            move(spark, args, sink, queue, where)
    if args.table:
        ids = spark.read.format("delta").load(where).select("message_id").collect()
        print("LEDGER " + json.dumps([row[0] for row in ids]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
