"""Fetch: one task's range of a lease as record batches, with no Python object per row (K7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ackq.spark.schema import EDGE, STREAMED
from ackq.spark.task import Task
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns
from ackq.wire.answers import copied

if TYPE_CHECKING:
    from ackq.client import Session


@dataclass(frozen=True)
class LeaseRange(InputPartition):
    """Tags (after_tag, last_tag] of a lease, read by one task; repeatable (S2).

    `key` proves that the task got the range from the holder (A4); `edge` is the broker's endpoint.
    """

    session: str
    incarnation: str
    epoch: int
    after_tag: int
    last_tag: int
    key: bytes = field(default=b"", repr=False, compare=False)
    edge: str = field(default="", compare=False)


def fetch(
    session: Session, part: LeaseRange, names: list[str], task: Task
) -> Iterator[pa.RecordBatch]:
    """Record batches of a range, in tag order.

    Args:
        session: The client.
        part: The range.
        names: Columns of `STREAMED`, in this order.
        task: The reading task: shown to operators, and the key by which the broker finds the
            lease of a settle call (S6).

    Raises:
        FencedError: Another holder, named in the message, has taken the session over (S3).
        SessionNotFoundError, BrokerUnavailableError: As named.
    """
    wanted = [name for name in names if name != EDGE] or ["delivery_tag"]
    request = copied(
        pb.FetchRequest,
        part,
        columns=columns.bits(wanted),
        query_id=task.query_id,
        run_id=task.run_id,
        batch_id=task.batch_id,
        label=task.label,
    )
    batches: Iterator[pa.RecordBatch] = session.fetch(request, wanted)
    return map(partial(_with_edge, names, part.edge), batches) if EDGE in names else batches


def _with_edge(names: list[str], endpoint: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        pa.repeat(endpoint, batch.num_rows) if name == EDGE else batch.column(name)
        for name in names
    ]
    schema = pa.schema([pa.field(name, STREAMED[name][1]) for name in names])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
