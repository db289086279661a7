"""The ledger's driver program: queue -> Spark -> queue -> Spark -> Delta, endless or drained.

Both queries run in one Spark. Every task records what it read, row by row with its delivery tag and
counts, so that the test can compare all attempts of a batch. With `--settle` the first query
decides the fate of each message in `foreachBatch`.
"""

import argparse
import json
import threading
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as f

from ackq.client import Admin
from ackq.spark import configure
from ackq.spark.engine import SAYS_START
from tests import prefork
from tests.crash import local_spark, points, standing

COLUMNS = ["body", "message_id", "delivery_tag", "redelivered", "delivery_count"]
QUEUES = ("in", "mid")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--master", default="local-cluster[2,1,600]")
    parser.add_argument("--settle", action="store_true")
    parser.add_argument("--drain", action="store_true", help="until nothing is left, then end")
    parser.add_argument("--max-messages", default="1000")
    return parser.parse_args()


def start_spark(args):
    """Starts a Spark that retries tasks often, and replaces executors without end."""
    settings = {
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    made = local_spark.builder("ledger", args.master, settings, delta=True)
    spark = configure(made, fast_workers=True).getOrCreate()
    spark.dataSource.register(points.Source)
    return spark


def noting(trace, query):
    """A pass-through over Arrow batches that records a task's rows once it has read them all."""

    def through(batches):
        task = TaskContext.get()
        rows = []
        for batch in batches:
            seen = zip(*(batch.column(name).to_pylist() for name in COLUMNS[1:]), strict=True)
            rows += [list(row) for row in seen]
            yield batch
        line = {
            "query": query,
            "run": task.getLocalProperty("spark.jobGroup.id"),
            "batch": int(task.getLocalProperty("streaming.sql.batchId")),
            "partition": task.partitionId(),
            "attempt": task.attemptNumber(),
            "rows": rows,
        }
        with trace.open("a") as file:
            file.write(json.dumps(line) + "\n")

    return through


class Hop:
    """A query from a queue to another queue or a table."""

    def __init__(self, spark, args, queue):
        self.args = args
        self.queue = queue
        source = spark.readStream.format("ackq_with_points").options(
            endpoint=args.endpoint,
            queue=queue,
            maxMessagesPerTrigger=args.max_messages,
            minPartitions="2",
        )
        if not SAYS_START:
            source = source.option("session", f"ledger-{queue}")  # required before Spark 4.2 (K13)
        rows = source.load().select(*COLUMNS)
        self.rows = rows.mapInArrow(noting(args.folder / "trace.jsonl", queue), rows.schema)

    def start(self, **trigger):
        """Starts the query."""
        writer = self.write().trigger(**trigger)
        folder = self.args.folder / f"checkpoint-{self.queue}"
        writer = writer.option("checkpointLocation", str(folder)).queryName(self.queue)
        if self.queue == "mid":
            return writer.start(str(self.args.folder / "table"))
        return writer.start()

    def write(self):
        """The writer of the query's rows."""
        if self.queue == "mid":
            return self.rows.select("message_id", "body").writeStream.format("delta")
        if self.args.settle:
            return self.rows.writeStream.foreachBatch(self.decide)
        rows = self.rows.select("message_id", "body").writeStream.format("ackq_with_points")
        return rows.options(endpoint=self.args.endpoint, queue="mid")

    def decide(self, rows, batch_id):
        """Rejects bad rows, fails or releases some once, and passes all others on exactly once.

        The body names the fate of a message; after a requeue it has a higher delivery count.
        """
        from ackq.spark import settle

        points.passing("batch_begun")
        fate = f.trim(f.split("body_text", " ")[1])
        again = fate.isin("failed", "released") & (f.col("delivery_count") == 1)
        decided = rows.withColumn("body_text", f.col("body").cast("string")).withColumn(
            "outcome", f.when((fate == "rejected") | again, fate).otherwise("accepted")
        )
        other = decided.where("outcome != 'accepted'").select(
            "delivery_tag",
            "outcome",
            f.lit("told to").alias("reason"),
            f.lit("200ms").alias("delay"),
        )
        settle(other, endpoint=self.args.endpoint)
        points.passing("settled")
        good = decided.where("outcome = 'accepted'").select("message_id", "body").write
        good = good.format("ackq").options(endpoint=self.args.endpoint, queue="mid")
        good.options(txnAppId="ledger", txnVersion=batch_id).mode("append").save()
        points.passing("written")


def watch_table(folder):
    """Passes a point as soon as the table has a new version."""
    log = folder / "table" / "_delta_log"
    seen = len(list(log.glob("*.json")))
    while True:
        time.sleep(0.003)
        found = len(list(log.glob("*.json")))
        if found > seen:
            points.passing("table_committed")
        seen = found


def watch_checkpoints(folder):
    """Passes a point as soon as a file of `offsets` or of `commits` exists."""
    awaited = {}
    while True:
        time.sleep(0.003)
        point, _ = points.armed()
        if point not in points.LOGS:
            awaited = {}
            continue
        if not awaited:
            logs = {name: folder / f"checkpoint-{name}" / points.LOGS[point] for name in QUEUES}
            awaited = {name: log / str(standing.newest(log) + 1) for name, log in logs.items()}
        for name, file in awaited.items():
            if file.exists():
                points.passing(point, name)


def left(endpoint):
    """The number of messages in the two queues: ready, unacked or delayed."""
    with Admin(endpoint) as admin:
        infos = [admin.queue(name) for name in QUEUES]
    return sum(info.ready + info.unacked + info.delayed for info in infos)


def main():
    """Runs the two queries."""
    args = arguments()
    if args.drain:
        prefork.use_python()  # while it drains no worker is killed
    spark = start_spark(args)
    hops = [Hop(spark, args, queue) for queue in QUEUES]
    if not args.drain:
        for watch in (watch_table, watch_checkpoints):
            threading.Thread(target=watch, args=(args.folder,), daemon=True).start()
        for hop in hops:
            hop.start(processingTime="200 milliseconds")
        spark.streams.awaitAnyTermination()
        return
    # On Spark 4.0 and 4.1 the next start accepts the last batch (K13): until then it is left.
    while True:
        for hop in hops:
            hop.start(availableNow=True).awaitTermination()
        if not left(args.endpoint):
            break
    rows = spark.read.format("delta").load(str(args.folder / "table")).select("message_id")
    ids = [row[0] for row in rows.collect()]
    (args.folder / "ledger.json").write_text(json.dumps(ids))
    spark.stop()


if __name__ == "__main__":
    main()
