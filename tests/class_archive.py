"""An archive of the classes that Spark's JVM loads: with it a start takes a third less CPU.

`python -m tests.class_archive` makes it, from what a small query loads. It lies in the virtual
environment. A JVM that finds none, or one of another Java or Spark, starts without it.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

PATH = Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"
# A JVM that lives for seconds does not recover the cost of its second compiler, nor that of a
# collector with threads of its own.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def java_options(use: Path = PATH) -> str:
    """The options of a short-lived JVM, with the archive where there is one."""
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={use}"


def start_making() -> subprocess.Popen[bytes] | None:
    """Starts a process that makes the archive; None if there is one.

    The query of that process downloads Delta to the machine. Where it is not there yet, this waits
    for the process: Spark sessions of several workers would fail if they downloaded it at one time.
    """
    has_delta = any(Path.home().glob(".ivy2*/jars/io.delta_delta-spark_*"))
    if PATH.exists() and has_delta:
        return None
    making = subprocess.Popen(
        [sys.executable, "-m", "tests.class_archive"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if not has_delta:
        making.wait()
    return making


def make() -> None:
    """Makes the archive in a new file, and puts it in its place when it is whole."""
    from tests import ivy  # imports PySpark, which is slow

    with tempfile.TemporaryDirectory(dir=PATH.parent) as folder:
        made = Path(folder) / PATH.name
        options = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made}"
        code = f"from tests import class_archive; class_archive.load({folder!r})"
        with ivy.alone():
            # The JVM writes the archive when Python has ended, and closes its output then.
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "SPARK_SUBMIT_OPTS": options},
                stdout=subprocess.PIPE,
                check=True,
            )
        made.replace(PATH)


def load(folder: str) -> None:
    """Runs a query from a queue to a Delta table, so that its classes are loaded."""
    import ackq_broker
    from ackq.client import Admin, Publisher
    from ackq.spark import configure
    from tests.crash import local_spark

    spark = configure(local_spark.builder("archive", "local[2]", {}, delta=True)).getOrCreate()
    with ackq_broker.embedded(Path(folder) / "broker") as broker:
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("in")
        with Publisher(broker.endpoint, routing_key="in") as publisher:
            publisher.publish("a")
        rows = spark.readStream.format("ackq").options(endpoint=broker.endpoint, queue="in").load()
        query = rows.writeStream.format("delta").option(
            "checkpointLocation", f"{folder}/checkpoint"
        )
        query.trigger(availableNow=True).start(f"{folder}/table").awaitTermination()
        spark.read.format("delta").load(f"{folder}/table").collect()
    spark.stop()


if __name__ == "__main__":
    make()
