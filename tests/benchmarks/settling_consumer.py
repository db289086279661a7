"""settling_consumer.py ENDPOINT QUEUE COUNT: takes COUNT messages as the Spark source does.

The calls of its driver and tasks, without Spark: each lease is fetched whole, and accepted by the
call that leases the next one. Invariant: it ends when all COUNT messages are accepted.
"""

import sys

from ackq.client import Admin, Session
from ackq.spark.options import options
from ackq.spark.source.lease import ReadLimits, SessionDriver
from ackq.spark.source.offset import OPENING
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns

COLUMNS = ("body", "message_id")
_WAIT_MS = 1_000


def consume(endpoint, queue, count):
    """Takes and accepts `count` messages; returns the number of batches."""
    session = Session(endpoint)
    with Admin(endpoint) as admin:
        given = options.source({"endpoint": endpoint, "queue": queue})
        driver = SessionDriver(given, session, admin.session)
        most = ReadLimits(given.max_messages, given.max_bytes, wait_ms=_WAIT_MS)
        taken = batches = 0
        at = driver.advance(OPENING, most)
        while taken < count:
            end = driver.advance(at, most)
            lease = driver.lease(at, end)
            assert lease is not None
            if end.tag > at.tag:
                taken += _fetched(session, lease)
                batches += 1
            at = end
        driver.advance(at, ReadLimits(1, 1))
        driver.close()
    return batches


def _fetched(session, lease):
    """The number of rows in a lease, all of which are read."""
    request = pb.FetchRequest(
        session=lease.session,
        incarnation=lease.incarnation,
        epoch=lease.epoch,
        after_tag=lease.start_tag,
        last_tag=lease.end_tag,
        columns=columns.bits(COLUMNS),
        key=lease.key,
    )
    return sum(rows.num_rows for rows in session.fetch(request, COLUMNS))


if __name__ == "__main__":
    print(consume(sys.argv[1], sys.argv[2], int(sys.argv[3])))
