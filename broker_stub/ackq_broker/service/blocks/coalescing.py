"""Coalesces adjacent compatible frames into one block.

Invariant: the block holds the rows of its frames in order: row i has the i-th number of
`numbers_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ackq import limits
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq.wire.frame import Bytes
from ackq_broker.service.blocks import validation
from ackq_broker.service.blocks.ingest import from_messages
from ackq_broker.service.blocks.merge import merge

Request = frame.Frame[pb.PublishHeader]

# A larger block is stored as received: merging it would only copy it.
_SMALL_BYTES: Final = 64 * limits.KIB
# Maximum gap of already answered numbers between adjacent frames. Bounded because some work on a
# group is linear in the range of its numbers.
_GAP_NUMBERS: Final = limits.FRAME_TARGET_ROWS


def groups(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yields the requests in order, in lists of adjacent ones that can be coalesced."""
    if len(requests) == 1:
        yield [*requests]
        return
    group: list[Request] = []
    size = rows = 0
    for request in requests:
        fits = (
            group
            and _alike(group[-1], request)
            and size + size_of(request) <= limits.FRAME_TARGET_BYTES
            and rows + rows_of(request) <= limits.FRAME_TARGET_ROWS
        )
        if group and not fits:
            yield group
            group, size, rows = [], 0, 0
        group.append(request)
        size += size_of(request)
        rows += rows_of(request)
    if group:
        yield group


def rows_of(request: Request) -> int:
    """The number of rows that a data frame announces; 0 for other requests."""
    data = request.header.data
    return len(data.messages) or data.rows


def numbers_of(group: Sequence[Request]) -> npt.NDArray[np.uint64]:
    """The publish number of each row of a group of data frames, ascending."""
    numbers = [
        np.arange(first, first + rows_of(request), dtype=np.uint64)
        for request in group
        for first in (request.header.data.first_number,)
    ]
    return numbers[0] if len(numbers) == 1 else np.concatenate(numbers)


def coalesce(group: Sequence[Request], now_us: int) -> tuple[Bytes, int]:
    """Merges all frames of a group into one block; returns it and the announced number of rows.

    Raises:
        MalformedBlockError: One of several frames holds no valid block, or not the number of rows
            it announces.
    """
    announced = sum(map(rows_of, group))
    if group[0].header.data.messages:
        messages = [message for request in group for message in request.header.data.messages]
        return from_messages(messages, now_us), announced
    if len(group) == 1:
        return group[0].block, announced
    parts = [validation.decode(request.block, request.header.data.rows) for request in group]
    return merge(parts), announced


def _alike(before: Request, request: Request) -> bool:
    """Whether two adjacent requests may be coalesced into one block."""
    if not (before.header.HasField("data") and request.header.HasField("data")):
        return False
    one, two = before.header.data, request.header.data
    return (
        one.exchange == two.exchange
        and one.mandatory == two.mandatory
        and one.transaction_id == two.transaction_id
        and not one.commit_messages
        and bool(one.messages) == bool(two.messages)
        and 0 <= two.first_number - one.first_number - rows_of(before) <= _GAP_NUMBERS
        and len(before.block) <= _SMALL_BYTES
        and len(request.block) <= _SMALL_BYTES
    )


def size_of(request: Request | frame.Frame[pb.StageHeader]) -> int:
    """The size of a request in bytes."""
    return len(request.block) + request.header.ByteSize()
