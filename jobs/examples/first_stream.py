"""Streams a queue to the console; each message is accepted with its micro-batch.

    python jobs/examples/first_stream.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from ackq.client import Admin, Publisher
from ackq.spark import configure
from ackq_broker import embedded

QUEUE = "example.first_stream"
COUNT = 100


def run(spark: SparkSession, endpoint: str, folder: str) -> None:
    """Publishes messages, streams them, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(QUEUE)
    with Publisher(endpoint, routing_key=QUEUE) as publisher:
        for number in range(COUNT):
            publisher.publish(f'{{"id": {number}}}', message_id=str(number))
    reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=QUEUE, session=QUEUE)
    messages = reader.schema("body BINARY, message_id STRING").load()
    rows = messages.selectExpr("message_id", "get_json_object(CAST(body AS STRING), '$.id') AS id")
    # The format "delta" with a path writes a table, in a session that has Delta.
    writer = rows.writeStream.format("console").option("checkpointLocation", folder)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    read = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"published={COUNT} read={read} unacked={admin.queue(QUEUE).unacked}")


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
