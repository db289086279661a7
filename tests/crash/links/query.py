"""A Spark driver whose streaming queries read queues of a local broker, until it is killed.

    python -m tests.crash.links.query --endpoint HOST:PORT --folder FOLDER \\
        --to-table orders --to-queue in:out

`--to-table QUEUE` appends the queue to the Delta table FOLDER/table-QUEUE, and `--to-queue A:B`
moves queue A to queue B, both exactly once: each with its checkpoint FOLDER/checkpoint-QUEUE. A
query that fails ends the driver.
"""

import argparse
from pathlib import Path

from ackq.spark import configure
from tests.crash import local_spark
from tests.crash.links.table import table_folder


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--to-table", action="append", default=[], metavar="QUEUE")
    parser.add_argument("--to-queue", action="append", default=[], metavar="QUEUE:TARGET")
    parser.add_argument("--id-of-body", action="store_true", help="a message's body is its id")
    parser.add_argument("--retain", action="store_true", help="sessions that can be read again")
    return parser.parse_args()


def start_spark(folder, *, delta):
    """The Spark session of this process: two tasks at once, each tried eight times."""
    settings = {"spark.driver.memory": "768m", "spark.local.dir": str(folder / "local")}
    made = local_spark.builder("links", "local[2,8]", settings, delta=delta)
    return configure(made, fast_workers=True).getOrCreate()


def start_query(spark, args, queue, target=None):
    """Starts the query of a queue: to another queue, or without one to its table."""
    source = spark.readStream.format("ackq").options(
        endpoint=args.endpoint, queue=queue, maxMessagesPerTrigger="2000"
    )
    if args.retain:
        source = source.options(session=queue, retain="12h", startFrom="earliest")
    name = "cast(body as string) as message_id" if args.id_of_body else "message_id"
    rows = source.load().selectExpr(name, "body")
    writer = rows.writeStream.format("delta" if target is None else "ackq")
    if target is not None:
        writer = writer.options(endpoint=args.endpoint, queue=target)
    checkpoint = args.folder / f"checkpoint-{queue}"
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(queue)
    writer = writer.trigger(processingTime="200 milliseconds")
    return (
        writer.start()
        if target is not None
        else writer.start(str(table_folder(args.folder, queue)))
    )


def main():
    """Runs the queries until one fails."""
    args = arguments()
    spark = start_spark(args.folder, delta=bool(args.to_table))
    for queue in args.to_table:
        start_query(spark, args, queue)
    for pair in args.to_queue:
        queue, _, target = pair.partition(":")
        start_query(spark, args, queue, target)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
