"""delta_both_ways.py ENDPOINT FOLDER: queue `in` -> Delta table -> queue `out`, every step twice.

Invariant: before a step is repeated, the last entry of its commit log is deleted, as after a crash
between the sink's commit and Spark's. The last line is the table's message ids as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from ackq.spark.engine import SAYS_START

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "jobs")]

from kit.session import spark_session  # noqa: E402 - found by the line above
from tests.spark import ledger  # noqa: E402 - likewise

endpoint, folder = sys.argv[1], Path(sys.argv[2])
table = str(folder / "table")


def run(writer: DataStreamWriter, name: str) -> None:
    """Runs a step, deletes its last commit entry, and runs it again, to its end."""
    checkpoint = folder / name
    step = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    # Before Spark 4.2 a run has one batch: the second run only the repeated one, and the last one
    # accepts the batch of the third (K13).
    for attempt in range(2 if SAYS_START else 4):
        assert step.start().awaitTermination(300)
        if not attempt:
            last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
            for entry in (f"{last}", f".{last}.crc"):
                (checkpoint / "commits" / entry).unlink()


with spark_session("delta both ways", folder / "spark.log") as spark:
    queue = spark.readStream.format("ackq").options(
        endpoint=endpoint, queue="in", session="in", maxMessagesPerTrigger=6
    )
    messages = queue.schema(ledger.CARRIED).load()
    run(messages.writeStream.format("delta").option("path", table), "in")
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table)
    run(rows.writeStream.format("ackq").options(endpoint=endpoint, queue="out"), "out")
    stored = spark.read.format("delta").load(table)
    print(json.dumps([row.message_id for row in stored.collect()]))
