"""Deliveries that the edge cannot take, and the numbering of the others without them. Rule L29.

The edge numbers a subscription's deliveries without a gap, and the remote broker gives each a tag:
the two differ by the number of deliveries set aside. Invariant: a delivery that is set aside is
never sent to the edge.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ackq import limits
from ackq.wire import block
from ackq_link.adapter import Deliveries
from ackq_link.edge import Proof

# The edge counts the queue's name in the size of a message.
_MOST_BYTES = limits.MAX_MESSAGE_BYTES - limits.MAX_NAME_BYTES


class SetAside:
    """The deliveries of one subscription that were set aside, by tag."""

    def __init__(self) -> None:
        self._tags: list[int] = []

    def add(self, tag: int) -> None:
        """Sets a delivery aside; its tag is above all tags set aside before."""
        self._tags.append(tag)

    def number(self, tag: int) -> int:
        """The edge's number of a tag; of a tag set aside, the number of the delivery before it."""
        return tag - bisect_right(self._tags, tag)

    def tags(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of tags that a range of the edge's numbers covers."""
        behind = [tag - at for at, tag in enumerate(self._tags)]  # the next number after each
        while first <= last:
            shift = bisect_right(behind, first)
            end = min(last, behind[shift] - 1) if shift < len(behind) else last
            yield first + shift, end + shift
            first = end + 1

    def parts(self, deliveries: Deliveries, unfit: dict[int, str]) -> Iterator[Deliveries]:
        """Splits deliveries at unfit rows and drops these; `first_tag` is the edge's number."""
        begin = 0
        for row in (*unfit, deliveries.rows.num_rows):
            if row > begin:
                counts, positions = deliveries.delivery_counts, deliveries.positions
                lasting = deliveries.lasting
                yield replace(
                    deliveries,
                    rows=deliveries.rows.slice(begin, row - begin),
                    first_tag=self.number(deliveries.first_tag + begin),
                    redelivered=deliveries.redelivered[begin:row],
                    delivery_counts=counts[begin:row] if counts else (),
                    positions=positions and positions.part(begin, row),
                    lasting=None if lasting is None else lasting.slice(begin, row - begin),
                )
            if row in unfit:
                self.add(deliveries.first_tag + row)
            begin = row + 1


class Settlements:
    """The order of a subscription's settlements, by permit of the edge or without one."""

    def __init__(self) -> None:
        self._count = 0
        self._others: list[int] = []  # the settlements without a permit, counted from 1
        # Per permitted range, in order: the number of permits up to its end, and its last number.
        self._ranges = deque([(0, 0)])

    def permitted(self, first: int, last: int) -> None:
        """Records that the deliveries with these numbers were settled by permit of the edge."""
        self._count += last - first + 1
        self._ranges.append((self._ranges[-1][0] + last - first + 1, last))

    def other(self) -> None:
        """Records the rejection of a delivery without a permit: the edge could not take it."""
        self._count += 1
        self._others.append(self._count)

    def proof(self, settlements: int) -> Proof:
        """The proof (L10) of the first `settlements`, a count that never falls between calls."""
        proven = settlements - bisect_right(self._others, settlements)
        while self._ranges[0][0] < proven:
            self._ranges.popleft()
        end, last = self._ranges[0]
        return Proof(proven, last - (end - proven))


def unfit(rows: pa.RecordBatch) -> dict[int, str]:
    """Reasons why the edge cannot take rows, by row index: the row or its headers are too large."""
    if block.payload_bytes(rows) <= limits.MAX_HEADER_BYTES:
        return {}
    found = {
        row: f"it has {size} bytes, and the local broker takes {limits.MAX_MESSAGE_BYTES}"
        for row, size in _over(rows, _MOST_BYTES)
    }
    if "headers" in rows.schema.names:
        for row, size in _over(rows.select(["headers"]), limits.MAX_HEADER_BYTES):
            found.setdefault(
                row,
                f"its headers have {size} bytes, and the local broker takes"
                f" {limits.MAX_HEADER_BYTES}",
            )
    return dict(sorted(found.items()))


def _over(rows: pa.RecordBatch, most: int) -> Iterator[tuple[int, int]]:
    sizes = block.row_bytes(rows)
    for row in pc.indices_nonzero(pc.greater(sizes, most)).to_pylist():
        yield row, sizes[row].as_py()
