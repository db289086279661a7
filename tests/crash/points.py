"""Named points of the micro-batch protocol where a whole driver under test is killed (SIGKILL).

The points are passed in the processes of the driver's side: Spark's Python program, the source's
reader and the sink's commit. A file that the test writes arms one of them; it names the process
group of the driver, because Spark's workers leave that group. The process that passes the point
leaves a file with the queue of its query.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path

from ackq.spark.datasource import AckqDataSource
from ackq.spark.engine import SAYS_START
from ackq.spark.options import options as parse
from ackq.spark.options.table import Use
from ackq.spark.sink.writer import AckqStreamWriter, stream_writer
from ackq.spark.source.older_reader import OlderStreamReader
from ackq.spark.source.reader import AckqStreamReader

ARM = "ACKQ_LEDGER_ARM"

# Points of every query; of the one into a queue, into Delta, and the one that settles: below.
SOURCE = ("proven", "accepted", "planned", "offset_written")
# At the place of `proven`: `commits/N` exists, and the source has not accepted batch N. The test
# that counts the death then removes `commits/N`, as a power loss does.
COMMIT_LOST = "commit_lost"
# Points of every query as well, between `commits/N` and the accept.
COMMITTED = ("commit_written", COMMIT_LOST)
# Passed as soon as a file of this log of a checkpoint exists; the driver watches for it.
LOGS = {"offset_written": "offsets", "commit_written": "commits"}
SINK = ("staged", "committed")
TABLE = ("table_committed",)
SETTLING = ("batch_begun", "settled", "written")


def arm(file, point, group):
    """Arms a point: the driver in this process group dies there, once."""
    _passed(file).unlink(missing_ok=True)
    new = file.with_suffix(".new")
    new.write_text(f"{point} {group}")
    new.rename(file)


def disarm(file):
    """Disarms every point."""
    file.unlink(missing_ok=True)


def passed(file):
    """The queue of the query that passed the armed point; "" if it is not known."""
    return _passed(file).read_text()


def _passed(file):
    return file.with_suffix(".passed")


def armed():
    """The armed point, and the process group that dies; "" and 0 if none is armed."""
    try:
        wanted, group = Path(os.environ[ARM]).read_text().split()
    except FileNotFoundError:
        return "", 0
    return wanted, int(group)


def passing(point, queue=""):
    """Passes a point for a queue's query: the driver dies if this point is armed."""
    wanted, group = armed()
    if wanted == point:
        file = Path(os.environ[ARM])
        _passed(file).write_text(queue)
        file.unlink(missing_ok=True)
        os.killpg(group, signal.SIGKILL)
        time.sleep(60)  # this process may be outside of the group: its parent's death ends it


class Points:
    """The points of a source: before and after the accept, and when a batch is planned."""

    # Whether a batch may be waiting for its accept: a poll of an idle query has none.
    _owes = True

    def _pass_points(self, start, latest):
        """Calls `latest`, which accepts up to `start` and leases."""
        queue = self._options.queues[0]
        if self._owes and not start.is_opening:
            passing("proven", queue)
            passing(COMMIT_LOST, queue)
        end = latest()
        self._owes = self._offsets(end) != start
        if self._owes and not start.is_opening:
            passing("accepted", queue)
        return end

    def partitions(self, start, end):
        self._owes = True
        planned = super().partitions(start, end)
        if planned:
            passing("planned", self._options.queues[0])
        return planned


class Reader(Points, AckqStreamReader):
    """The source with points."""

    def latestOffset(self, start, limit):  # noqa: N802 - Spark's name
        latest = partial(super().latestOffset, start, limit)
        return self._pass_points(self._offsets(start), latest)


class OlderReader(Points, OlderStreamReader):
    """The source with points, on Spark 4.0 and 4.1 (K13)."""

    def latestOffset(self):  # noqa: N802 - Spark's name
        return self._pass_points(self._place, super().latestOffset)


class Writer(AckqStreamWriter):
    """The sink with points: when all stages are sealed, and when the batch is visible."""

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        passing("staged")
        super().commit(messages, batchId)
        passing("committed")


class Source(AckqDataSource):
    """The data source `ackq` with points."""

    @classmethod
    def name(cls):
        return "ackq_with_points"

    def streamReader(self, schema):  # noqa: N802 - Spark's name
        reader = Reader if SAYS_START else OlderReader
        return reader(parse.source(self.options), schema)

    def streamWriter(self, schema, overwrite):  # noqa: ARG002, N802 - Spark's signature
        plain = stream_writer(parse.sink(self.options, Use.SINK), schema)
        return Writer(plain._options, plain._mapping)
