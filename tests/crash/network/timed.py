"""The data source with a timer on each of its calls: an overdue call ends its process, noted.

Invariant: only ackq's own calls are timed, not a task's wait for the rows of another.
"""

import faulthandler
import os
import time
from contextlib import contextmanager
from pathlib import Path

from ackq import limits
from ackq.spark.datasource import AckqDataSource
from ackq.spark.options import options as parse
from ackq.spark.options.table import Use
from ackq.spark.sink.writer import AckqStreamWriter, stream_writer
from ackq.spark.source.reader import AckqStreamReader
from tests.crash.network.rounds import MARGIN_S
from tests.crash.network.timeouts import LOW, notice_s

FOLDER = "ACKQ_TEST_CALLS"
# The option `retryTimeout` of both sides.
RETRY_S = 10
# Time that a part of a task's writes needs, at 3 kB/s.
THROTTLED_S = 15


@contextmanager
def within(what, seconds):
    """Times a call that must end within `seconds`, as documented, plus the margin."""
    folder = Path(os.environ[FOLDER])
    begun = time.monotonic()
    with (folder / f"overdue-{what}-{os.getpid()}").open("w") as overdue:
        faulthandler.dump_traceback_later(seconds + MARGIN_S, exit=True, file=overdue)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            took_s = time.monotonic() - begun
            with (folder / "calls").open("a") as calls:
                calls.write(f"{what} {took_s:.3f}\n")


def retried_s():
    """Seconds in which a call is answered or has given up: two requests, one after another."""
    return 2 * (RETRY_S + notice_s())


class Reader(AckqStreamReader):
    """The source: its offsets, the plan of a batch, and each of a task's record batches."""

    def latestOffset(self, start, limit):  # noqa: N802 - Spark's name
        assert LOW["HEARTBEAT_MS"] == limits.HEARTBEAT_MS, "the time-outs here are not low"
        with within("latestOffset", retried_s()):
            return super().latestOffset(start, limit)

    def partitions(self, start, end):
        with within("partitions", retried_s()):
            return super().partitions(start, end)

    def read(self, partition):
        rows, done = super().read(partition), object()
        while True:
            with within("read", RETRY_S + notice_s() + THROTTLED_S):
                batch = next(rows, done)
            if batch is done:
                return
            yield batch


class Writer(AckqStreamWriter):
    """The sink: a task's write of its rows once it has all of them, commit and abort."""

    def write(self, iterator):
        rows = list(iterator)
        with within("write", RETRY_S + 2 * notice_s() + THROTTLED_S):
            return super().write(iter(rows))

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        with within("commit", RETRY_S + notice_s()):
            super().commit(messages, batchId)

    def abort(self, messages, batchId):  # noqa: N803 - Spark's name
        with within("abort", notice_s()):
            super().abort(messages, batchId)


class Source(AckqDataSource):
    """The data source `ackq`, timed."""

    @classmethod
    def name(cls):
        return "ackq_timed"

    def streamReader(self, schema):  # noqa: N802 - Spark's name
        return Reader(parse.source(self.options), schema)

    def streamWriter(self, schema, overwrite):  # noqa: ARG002, N802 - Spark's signature
        plain = stream_writer(parse.sink(self.options, Use.SINK), schema)
        return Writer(plain._options, plain._mapping)
