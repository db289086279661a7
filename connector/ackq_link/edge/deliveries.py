"""Deliveries as frames for the edge, their stored positions, and permits to acknowledge them.

Invariant: a part has a key and a check for each of its rows, and fits a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, NamedTuple

import pyarrow as pa

from ackq.client.blocks import encoding
from ackq.client.ranges import Range
from ackq.errors import AckqError, InvalidArgumentError, SchemaError
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame

_KEY_BYTES: Final = 16
_CHECK_BYTES: Final = 8


class StoredRun(NamedTuple):
    """Consecutive deliveries at consecutive positions of the link's queue.

    Attributes:
        first_number: The number of the first delivery.
        rows: The number of deliveries.
        first_position: The position of the first.
        matched: The edge already had their messages (L6).
        permitted: They may be acknowledged at the remote broker; `AsyncLink.permits` returns them
            in its turn.
        rejected: With `permitted`: they are to be rejected at the remote broker instead (L28).
    """

    first_number: int
    rows: int
    first_position: int
    matched: bool
    permitted: bool
    rejected: bool = False


class StoredDeliveries(NamedTuple):
    """The positions of deliveries that are on the edge's disk."""

    runs: tuple[StoredRun, ...]

    @property
    def rows(self) -> int:
        """The number of deliveries."""
        return sum(run.rows for run in self.runs)

    @property
    def matched(self) -> int:
        """The number of deliveries whose messages the edge already had."""
        return sum(run.rows for run in self.runs if run.matched)

    @property
    def permitted(self) -> int:
        """The number of deliveries that may be acknowledged at once."""
        return sum(run.rows for run in self.runs if run.permitted)


class Proof(NamedTuple):
    """The acknowledgements of a subscription that the remote broker provably applied (L10).

    Attributes:
        proven: The number of acknowledgements, in the order of their permits.
        number: The number of the delivery that the last of them is for; 0 with `proven` 0.
    """

    proven: int = 0
    number: int = 0


class Permits(NamedTuple):
    """The deliveries that may be acknowledged, or are to be rejected, at the remote broker now.

    Attributes:
        subscription: The subscription of the deliveries.
        ranges: Their numbers, in the order of the permits: they must be settled in this order,
            because proofs count in it (L10).
        rejected: Whether each of the ranges is to be rejected (L28); empty: none is.
    """

    subscription: int
    ranges: list[Range]
    rejected: Sequence[bool] = ()

    @property
    def outcomes(self) -> Iterator[tuple[Range, bool]]:
        """Each range of delivery numbers, and whether it is to be rejected."""
        return zip(self.ranges, self.rejected or repeat(False), strict=False)


Complete = Callable[[StoredDeliveries | AckqError], None]


class Columns(NamedTuple):
    """The keys, checks and flags that go with the rows of deliveries: one of each for every row.

    Attributes:
        keys: 16 bytes a row.
        checks: 8 bytes a row.
        content: Whether the key is of the content; None: of no row.
        redelivered: Whether the remote broker marked the delivery redelivered; None: no row.
        at_once: Whether it may be acknowledged when it is stored (L15); None: no row.
    """

    keys: bytes
    checks: bytes
    content: Sequence[bool] | None
    redelivered: Sequence[bool] | None
    at_once: Sequence[bool] | None = None

    def part(self, first: int, end: int) -> dict[str, bytes]:
        """The keys, checks and flags of the rows from `first` up to `end`, as frame fields."""
        return {
            "keys": self.keys[_KEY_BYTES * first : _KEY_BYTES * end],
            "checks": self.checks[_CHECK_BYTES * first : _CHECK_BYTES * end],
            **{
                name: _bits(getattr(self, name), first, end)
                for name in ("content", "redelivered", "at_once")
            },
        }


@dataclass(eq=False, slots=True)
class LinkPart:
    """Deliveries that share a frame.

    Attributes:
        numbers: The range of its delivery numbers.
        beside: Keys and flags of all the rows that it is a part of.
        offset: The index of its first row in `beside`.
        complete: Called once, with the stored positions or the error.
        abandoned: Its answer is ignored: another subscription began, or the subscription or the
            stream ended.
    """

    numbers: Range
    batch: pa.RecordBatch
    routing_key: str
    beside: Columns
    offset: int
    complete: Complete
    abandoned: bool = False

    @property
    def rows(self) -> int:
        """The number of deliveries in the part."""
        return self.numbers.last - self.numbers.first + 1

    def split(self, rows: int) -> tuple[LinkPart, LinkPart]:
        """Splits the part after its first `rows`; it is complete when both halves are."""
        assert 0 < rows < self.rows, "both parts have rows"
        first_complete, second_complete = _both(self.complete)
        at = self.numbers.first + rows
        first = replace(
            self,
            numbers=Range(self.numbers.first, at - 1),
            batch=self.batch.slice(0, rows),
            complete=first_complete,
        )
        second = replace(
            self,
            numbers=Range(at, self.numbers.last),
            batch=self.batch.slice(rows),
            offset=self.offset + rows,
            complete=second_complete,
        )
        return first, second

    def encoded(
        self, subscription: int, lowest_unanswered: int, proof: Proof, *, repeats_end: bool = False
    ) -> bytes:
        """The part encoded as a frame."""
        header = pb.LinkHeader(
            deliveries=pb.LinkDeliveries(
                subscription=subscription,
                first_number=self.numbers.first,
                rows=self.rows,
                lowest_unanswered=lowest_unanswered,
                proven=proof.proven,
                proven_number=proof.number,
                repeats_end=repeats_end,
                **self.beside.part(self.offset, self.offset + self.rows),
            )
        )
        block = encoding.encode_batch(self.batch, routing_key=self.routing_key, persistent=True)
        return frame.encode(header.SerializeToString(), block)


def parts(
    first_number: int,
    rows: pa.RecordBatch,
    beside: Columns,
    routing_key: str,
    complete: Callable[[], Complete],
) -> Iterator[LinkPart]:
    """Cuts deliveries into parts that fit a frame; checks all rows before it makes the first.

    Raises:
        SchemaError: A column is missing, unknown or of the wrong type.
        MessageTooLargeError: A row is over the size limit.
        InvalidArgumentError: The number of keys, checks or flags differs from the number of rows.
    """
    _check(rows, beside)
    ready = encoding.publishable(rows, routing_key=routing_key)
    at = 0
    for batch in encoding.cut(ready):
        end = at + batch.num_rows
        yield LinkPart(
            numbers=Range(first_number + at, first_number + end - 1),
            batch=batch,
            routing_key=routing_key,
            beside=beside,
            offset=at,
            complete=complete(),
        )
        at = end


def _both(complete: Complete) -> tuple[Complete, Complete]:
    """The completions of a part's two halves: `complete` is called when both are, or one fails."""
    results: list[StoredDeliveries] = []

    def one(result: StoredDeliveries | AckqError) -> None:
        if isinstance(result, AckqError):
            complete(result)
            return
        results.append(result)
        if len(results) == 2:  # noqa: PLR2004
            complete(StoredDeliveries(results[0].runs + results[1].runs))

    return one, one


def _check(rows: pa.RecordBatch, beside: Columns) -> None:
    count = rows.num_rows
    if not count:
        raise InvalidArgumentError("Deliveries have at least one row.", argument="rows")
    if "ttl_ms" in rows.schema.names:
        raise SchemaError(
            "A link does not store the column 'ttl_ms': an expiration at the remote broker has no"
            " effect at the local broker. Send it as a header.",
            column="ttl_ms",
        )
    sizes = {
        "keys": (len(beside.keys), _KEY_BYTES * count),
        "checks": (len(beside.checks), _CHECK_BYTES * count),
        "content": (count if beside.content is None else len(beside.content), count),
        "redelivered": (count if beside.redelivered is None else len(beside.redelivered), count),
        "at_once": (count if beside.at_once is None else len(beside.at_once), count),
    }
    for name, (found, expected) in sizes.items():
        if found != expected:
            raise InvalidArgumentError(
                f"'{name}' has a length of {found}; for {count} rows it must be {expected}.",
                argument=name,
            )


def _bits(flags: Sequence[bool] | None, first: int, end: int) -> bytes:
    """Flags packed as bits, the lowest first; empty when none is set."""
    if flags is None:
        return b""
    part = [*map(bool, flags[first:end])]
    if not any(part):
        return b""
    bits: bytes = pa.array(part, pa.bool_()).buffers()[1].to_pybytes()
    return bits[: (len(part) + 7) // 8]
