"""A program that writes four rows to queue `q` in two tasks.

With `--hang` the second task never reaches its last row, and a crash test kills the program.
"""

import sys
import threading


def bodies(*, hang):
    """A function that makes each row's id its body."""

    def make(batches):
        import pyarrow as pa

        for batch in batches:
            ids = batch.column(0).to_pylist()
            if hang and 3 in ids:
                threading.Event().wait()
            yield pa.record_batch({"body": pa.array([str(each).encode() for each in ids])})

    return make


def main(endpoint, *, hang):
    """Writes the rows, and ends."""
    from pyspark.sql import SparkSession

    from ackq.spark import configure

    builder = configure(SparkSession.builder.master("local[2]").appName("batch write"))
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(0, 4, 1, 2).mapInArrow(bodies(hang=hang), "body binary")
    rows.write.format("ackq").mode("append").options(endpoint=endpoint, queue="q").save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], hang="--hang" in sys.argv)
