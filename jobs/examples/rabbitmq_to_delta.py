"""Streams a queue of RabbitMQ into a Delta table, through a link and a local broker.

    python jobs/examples/rabbitmq_to_delta.py --amqp amqp://127.0.0.1 --queue orders --count 1000

Each message is acknowledged at RabbitMQ once Spark's checkpoint covers it.
"""

import argparse
from contextlib import nullcontext

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from ackq.client import Admin
from ackq.spark import configure
from ackq_broker.links import embedded

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def run(spark: SparkSession, endpoint: str, args: argparse.Namespace) -> None:
    """Streams until `args.count` messages are in the table, and prints the counts."""
    admin = Admin(endpoint)
    before = admin.queue(args.queue).accepted
    source = {"endpoint": endpoint, "queue": args.queue, "session": "delta"}
    rows = spark.readStream.format("ackq").options(**source).load()
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{args.folder}/query")
    query = writer.start(f"{args.folder}/table")
    while admin.queue(args.queue).accepted - before < args.count:
        query.awaitTermination(1)  # raises the query's error
    query.stop()
    table = spark.read.format("delta").load(f"{args.folder}/table")
    print(f"rows={table.count()} unacked={admin.queue(args.queue).unacked}")


def main() -> None:
    """Runs on the local broker of --endpoint, which has the link, or starts both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a local broker with such a link")
    parser.add_argument("--amqp", default="amqp://127.0.0.1", help="RabbitMQ")
    parser.add_argument("--queue", default="orders", help="its name at both brokers")
    parser.add_argument("--count", type=int, default=1_000, help="ends after so many messages")
    parser.add_argument("--folder", default="orders", help="broker, checkpoint, table")
    args = parser.parse_args()
    link = {"name": args.queue, "direction": "in", "broker": args.amqp}
    link |= {"broker-queue": args.queue, "queue": args.queue}
    builder = configure_spark_with_delta_pip(configure(SparkSession.builder.master("local[2]")))
    # For more than a trial the folder outlives the machine, and `temporary` is left out.
    data = f"{args.folder}/broker"
    edge = nullcontext(args) if args.endpoint else embedded(data, [link], temporary=True)
    with builder.config(map=DELTA).getOrCreate() as spark, edge as broker:
        run(spark, broker.endpoint, args)


if __name__ == "__main__":
    main()
