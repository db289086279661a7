"""Named points of the micro-batch protocol at which a driver under test dies, whole (SIGKILL).

The points are passed in the processes of the driver's side: Spark's Python program, the source's
reader and the sink's commit. A file that the test writes arms one of them; it names the process
group of the driver, because Spark's workers leave that group.
"""

import os
import signal
import time
from pathlib import Path

from ackq.spark.datasource import AckqDataSource
from ackq.spark.options import options as parse
from ackq.spark.options.table import Use
from ackq.spark.sink.writer import AckqStreamWriter, stream_writer
from ackq.spark.source.offset import Offset
from ackq.spark.source.reader import AckqStreamReader

ARM = "ACKQ_LEDGER_ARM"

# Of every query, of the one into a queue, of the one into Delta, of the one that settles.
SOURCE = ("proven", "accepted", "planned")
SINK = ("staged", "committed")
TABLE = ("table_committed",)
SETTLING = ("batch_begun", "settled", "written")


def arm(file, point, group):
    """From now on the driver in this process group dies at a point, once."""
    new = file.with_suffix(".new")
    new.write_text(f"{point} {group}")
    new.rename(file)


def disarm(file):
    """No point is deadly any more."""
    file.unlink(missing_ok=True)


def passing(point):
    """The driver is at a point: it dies when this one is armed."""
    file = Path(os.environ[ARM])
    try:
        wanted, group = file.read_text().split()
    except FileNotFoundError:
        return
    if wanted == point:
        file.unlink(missing_ok=True)
        os.killpg(int(group), signal.SIGKILL)
        time.sleep(60)  # this process may be outside of the group: its parent's death ends it


class Reader(AckqStreamReader):
    """The source with points: before and after the accept, and when a batch is planned."""

    def latestOffset(self, start, limit):  # noqa: N802 - Spark's name
        begun = not Offset.from_dict(start).is_opening
        if begun:
            passing("proven")
        end = super().latestOffset(start, limit)
        if begun and end != start:
            passing("accepted")
        return end

    def partitions(self, start, end):
        planned = super().partitions(start, end)
        if planned:
            passing("planned")
        return planned


class Writer(AckqStreamWriter):
    """The sink with points: all stages are sealed, and the batch is visible."""

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        passing("staged")
        super().commit(messages, batchId)
        passing("committed")


class Source(AckqDataSource):
    """`ackq` with points."""

    @classmethod
    def name(cls):
        return "ackq_with_points"

    def streamReader(self, schema):  # noqa: N802 - Spark's name
        return Reader(parse.source(self.options), schema)

    def streamWriter(self, schema, overwrite):  # noqa: ARG002, N802 - Spark's signature
        plain = stream_writer(parse.sink(self.options, Use.SINK), schema)
        return Writer(plain._options, plain._mapping)
