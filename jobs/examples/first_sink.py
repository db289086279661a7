"""Streams a thousand rows of files to a queue, exactly once.

    python jobs/examples/first_sink.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from ackq.client import Admin
from ackq.spark import configure
from ackq_broker import embedded

QUEUE = "example.first_sink"
COUNT = 1_000


def run(spark: SparkSession, endpoint: str, folder: str) -> None:
    """Writes files, streams their rows to the queue, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(QUEUE)
    before = admin.queue(QUEUE).ready
    spark.range(COUNT).write.parquet(f"{folder}/rows")
    rows = spark.readStream.schema("id BIGINT").parquet(f"{folder}/rows")
    messages = rows.selectExpr("to_json(struct(id)) AS body", "CAST(id AS STRING) AS message_id")
    target = {"endpoint": endpoint, "queue": QUEUE, "checkpointLocation": f"{folder}/checkpoint"}
    writer = messages.writeStream.format("ackq").options(**target)
    writer.trigger(availableNow=True).start().awaitTermination()
    print(f"rows={COUNT} messages={admin.queue(QUEUE).ready - before}")


def main() -> None:
    """Runs on the broker of --endpoint, or on a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a running broker")
    args = parser.parse_args()
    with (
        configure(SparkSession.builder.master("local[2]")).getOrCreate() as spark,
        nullcontext(args) if args.endpoint else embedded() as broker,
        TemporaryDirectory() as folder,
    ):
        run(spark, broker.endpoint, folder)


if __name__ == "__main__":
    main()
