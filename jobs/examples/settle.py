"""Accepts, rejects or requeues each row of a stream, together with its micro-batch.

    python jobs/examples/settle.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from ackq.client import Admin, Publisher
from ackq.spark import configure, settle
from ackq_broker import embedded

QUEUE, DEAD = "example.settle", "example.settle.dead"
BODIES = ["good"] * 7 + ["bad"] * 2 + ["early"]
OUTCOME = """CASE WHEN text = 'bad' THEN 'rejected'
    WHEN text = 'early' AND NOT redelivered THEN 'released' ELSE 'accepted' END AS outcome"""
REASON = "IF(text = 'bad', 'it is bad', NULL) AS reason"


def run(spark: SparkSession, endpoint: str, folder: str) -> None:
    """Publishes messages, settles each by its body, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(DEAD)
    admin.declare_queue(QUEUE, dead_letter_queue=DEAD)
    with Publisher(endpoint, routing_key=QUEUE) as publisher:
        for body in BODIES:
            publisher.publish(body)

    def decide(rows: DataFrame, _batch_id: int) -> None:
        texts = rows.selectExpr("*", "CAST(body AS STRING) AS text")
        judged = texts.selectExpr("delivery_tag", OUTCOME, REASON)
        settle(judged, endpoint=endpoint, session=QUEUE)

    reader = spark.readStream.format("ackq").options(endpoint=endpoint, queue=QUEUE, session=QUEUE)
    writer = reader.load().writeStream.foreachBatch(decide).option("checkpointLocation", folder)
    writer.trigger(availableNow=True).start().awaitTermination()
    queue, dead = admin.queue(QUEUE), admin.queue(DEAD)
    print(f"accepted={queue.accepted} rejected={dead.ready} requeued={queue.ready + queue.delayed}")


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
