"""A reader that takes messages of an edge's queue exactly once, as a streaming query does."""

import uuid

from ackq import client
from ackq.client import Session
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.fetch_key import fetch_key

PATIENT_MS = 600_000
COLUMNS = ("message_id", "body")


class Accepting:
    """A session whose checkpoint is in memory: a batch is stored, and accepted by the next step.

    Args:
        endpoint: The edge, which may be killed meanwhile.
        queue: Its queue.
        retain_bytes: How much of what it accepted stays readable.

    Attributes:
        rows: The rows it took, as (message_id, body), in order.
        batches: Its batches, as (session, incarnation, tag before, last tag, rows), the last one
            not yet accepted.
    """

    def __init__(self, endpoint, queue="q", *, retain_bytes=0):
        self._session = Session(endpoint, retry_total_ms=PATIENT_MS)
        self._queue = queue
        self._holder = client.holder("accepting")
        self._query = uuid.uuid4().hex
        self._offset = ("", "", 0)  # session, incarnation, tag
        self._batch = 0
        self._retain_bytes = retain_bytes
        self.rows = []
        self.batches = []

    @property
    def ids(self):
        """The ids of the rows it took, as numbers."""
        return [int(message_id) for message_id, _ in self.rows]

    def step(self, most=1_000, wait_ms=0):
        """Accepts the previous batch, and takes another one; returns its number of rows."""
        if not self._offset[1]:
            self._offset = self._advance(0, 0)[0]  # the opening takes nothing
        tag = self._offset[2]
        offset, epoch = self._advance(most, wait_ms)
        name, incarnation, end = offset
        if end > tag:
            self._batch += 1
            request = pb.FetchRequest(
                session=name,
                incarnation=incarnation,
                epoch=epoch,
                after_tag=tag,
                last_tag=end,
                query_id=self._query,
                run_id="run",
                batch_id=self._batch,
                key=fetch_key(self._holder.token, incarnation, epoch),
            )
            rows = rows_of(self._session.fetch(request, COLUMNS))
            self.rows += rows
            self.batches.append((name, incarnation, tag, end, rows))
        self._offset = offset
        return end - tag

    def _advance(self, most, wait_ms):
        name, incarnation, tag = self._offset
        answer = self._session.advance(
            pb.AdvanceRequest(
                session=name,
                incarnation=incarnation,
                holder=self._holder,
                queues=[self._queue],
                start_tag=tag,
                max_messages=most,
                wait_ms=wait_ms,
                retain_bytes=self._retain_bytes,
            )
        )
        return (answer.session, answer.incarnation, answer.end_tag), answer.epoch


def rows_of(batches):
    """The rows of Arrow batches."""
    columns = ([column.to_pylist() for column in batch.columns] for batch in batches)
    return [row for each in columns for row in zip(*each, strict=True)]
