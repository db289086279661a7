"""Spark's Kafka source and sink, and both in one query, as the anchors of ackq's.

Invariant: all queries have the same session, columns, rows per micro-batch and tasks; ackq syncs
confirmed messages, and each comparison says whether Kafka did. A relay moves only bodies: ackq's
exactly once, Kafka's at least once.
"""

from functools import partial

import bench_sink
import bench_source
import harness
import kafka_sides
import spark_harness

HELP = "source, sink and relay as ratios to Spark's Kafka connector with a real broker"
OPTIONS = {**spark_harness.BATCHES, **spark_harness.BATCH_BYTES}


def run(args, endpoint):
    """Comparisons per body size, size of a micro-batch, and part."""
    with kafka_sides.running() as kafka:
        for load in spark_harness.loads(args):
            spark = kafka.spark
            write = partial(kafka.sink, bench_sink.made_rows(spark, load), load.batches)
            with kafka.topic() as topic:
                kafka.fill(topic, load.total, load.size)
                move = partial(kafka.relay, topic, load.rows, load.batches)
                for part, ours, anchors in (
                    (
                        "source",
                        bench_source.from_queue,
                        {"Kafka": partial(kafka.source, topic, load.rows, load.batches)},
                    ),
                    (
                        "sink",
                        bench_sink.to_queue,
                        {
                            "Kafka": write,
                            "Kafka tuned": partial(write, kafka_sides.TUNED),
                            "Kafka tuned, flushed": partial(write, kafka_sides.TUNED, flush=True),
                        },
                    ),
                    (
                        "relay",
                        relay,
                        {"Kafka tuned": move, "Kafka tuned, flushed": partial(move, flush=True)},
                    ),
                ):
                    yield from harness.compare(
                        {**anchors, "ackq": partial(ours, spark, load, endpoint)},
                        harness.against("ackq", anchors, f"{part}, {load.name}"),
                        args.reps,
                    )


def relay(spark, load, endpoint):
    """Moves a queue with exactly the rows of the run to another, exactly once."""
    with harness.queue(endpoint) as source, harness.queue(endpoint) as target:
        harness.fill(endpoint, source, rows=load.total, size=load.size)
        rows = spark_harness.read(spark, load, endpoint, source, "body BINARY")
        options = {"endpoint": endpoint, "queue": target}
        return spark_harness.measure(rows, "ackq", options, load.batches)
