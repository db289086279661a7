"""A Spark driver whose streaming queries read queues of a local broker, until it is killed.

Its one argument is the plan of a `DriverProcess`, as JSON. A queue with a target goes to that one,
another to the Delta table FOLDER/table-QUEUE: exactly once, with its checkpoint
FOLDER/checkpoint-QUEUE. A query that fails ends the driver.
"""

import json
import sys
from pathlib import Path

from ackq.spark import configure
from tests.crash import local_spark
from tests.crash.links.table import table_folder


def start_spark(folder, *, delta):
    """The Spark session of this process: two tasks at once, each tried eight times."""
    settings = {"spark.driver.memory": "768m", "spark.local.dir": str(folder / "local")}
    made = local_spark.builder("links", "local[2,8]", settings, delta=delta)
    return configure(made, fast_workers=True).getOrCreate()


def start_query(spark, plan, queue, target):
    """Starts the query of a queue: to another queue, or without one to its table."""
    source = spark.readStream.format("ackq").options(
        endpoint=plan["endpoint"], queue=queue, maxMessagesPerTrigger="2000"
    )
    if plan["retain"]:
        source = source.options(session=queue, retain="12h", startFrom="earliest")
    name = "cast(body as string) as message_id" if plan["id_of_body"] else "message_id"
    rows = source.load().selectExpr(name, "body")
    folder = Path(plan["folder"])
    writer = rows.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{queue}"))
    writer = writer.queryName(queue).trigger(processingTime="200 milliseconds")
    if target is None:
        writer.format("delta").start(str(table_folder(folder, queue)))
    else:
        writer.format("ackq").options(endpoint=plan["endpoint"], queue=target).start()


def main():
    """Runs the queries until one fails."""
    plan = json.loads(sys.argv[1])
    spark = start_spark(Path(plan["folder"]), delta=None in plan["targets"].values())
    for queue, target in plan["targets"].items():
        start_query(spark, plan, queue, target)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
