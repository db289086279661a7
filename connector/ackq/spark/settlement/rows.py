"""Converts the rows of a settling write to groups of tags with equal disposition (S6).

Per batch only Arrow kernels run; Python runs once per distinct outcome, reason and delay (K7).
Invariant: a tag is in the group of its last row.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from ackq import client, limits
from ackq.client.blocks.encoding import check_text
from ackq.errors import InvalidArgumentError, SchemaError
from ackq.spark.options import values
from ackq.spark.options.options import APPLIES_TO, SettleOptions
from ackq.spark.options.values import OUTCOMES
from ackq.spark.schema import EDGE

if TYPE_CHECKING:
    from ackq.v1 import sessions_pb2 as pb

_WHOLE: Final = (LongType, IntegerType, ShortType, ByteType)
# Types that each column may have.
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "delivery_tag": (LongType,),
    EDGE: (StringType,),
    "outcome": (StringType,),
    "reason": (StringType,),
    "delay": (StringType, *_WHOLE),
}
_KEYS: Final = ["outcome", "reason", "delay"]
_SCHEMA: Final = pa.schema(
    [
        ("delivery_tag", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("delay", pa.int64()),
    ]
)
# The broker keeps at most this much of a reason, so the rest is not sent.
_REASON_CHARACTERS: Final = 1_024


def columns(options: SettleOptions, have: Iterable[str]) -> list[str]:
    """The columns that a settling write uses or requires.

    `delivery_tag` always, `edge` with several edges or if it exists, `outcome` unless it is set by
    option; `reason` and `delay` if they exist, apply to the outcome, and are not set by option.
    """
    found, given = set(have), _set_by_option(options)
    # Tags are an edge's own: rows of an edge that `endpoint` does not name are refused (S12).
    by_edge = len(options.edges) > 1 or EDGE in found
    required = ("delivery_tag", EDGE, "outcome") if by_edge else ("delivery_tag", "outcome")
    names = [name for name in required if name not in given]
    for name in ("reason", "delay"):
        applies = options.outcome is None or options.outcome in APPLIES_TO[name]
        if name in found - given and applies:
            names.append(name)
    return names


def check(options: SettleOptions, schema: StructType) -> list[str]:
    """The columns that the write uses, each with a type that fits.

    Raises:
        SchemaError: A column is missing, unknown, of the wrong type, a duplicate, or without
            effect.
    """
    names = schema.fieldNames()
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise SchemaError(
            f"A settling write has no column {', '.join(map(repr, unknown))}; it takes"
            f" {', '.join(_TYPES)}. Select those, as ackq.spark.settle does.",
            column=unknown[0],
        )
    used = columns(options, names)
    for name in names:
        if name in _set_by_option(options):
            raise _set_twice(name)
        if name not in used:
            raise SchemaError(
                f"Column '{name}' has no effect with settle={options.outcome}: it is for"
                f" {' and '.join(APPLIES_TO[name])}. Leave it out.",
                column=name,
            )
    for name in used:
        if name not in names:
            raise missing(name, names)
        if names.count(name) > 1:
            raise SchemaError(f"Column '{name}' appears twice in the rows.", column=name)
        found, kinds = schema[name].dataType, _TYPES[name]
        if not isinstance(found, kinds):
            expected = " or ".join(kind().simpleString() for kind in kinds[:2])
            raise SchemaError(
                f"Column '{name}' is {found.simpleString()}; expected {expected}. "
                + (
                    "Take it from the source as it is, or drop one of your own."
                    if name in {"delivery_tag", EDGE}
                    else f"Cast it, rename it, or set the option '{_option(name)}'."
                ),
                column=name,
                expected=expected,
                found=found.simpleString(),
            )
    return used


def frames(
    options: SettleOptions, names: list[str], rows: Iterable[pa.RecordBatch]
) -> Iterator[list[pb.OutcomeGroup]]:
    """The outcomes of rows, in frames of about 2 MiB.

    Args:
        options: The write's options, which hold for every row.
        names: As returned by `check`.
        rows: Batches with these columns, of any size.

    Raises:
        SchemaError: A row has no tag or no outcome.
        InvalidArgumentError: A tag is not positive, an outcome unknown, or a delay invalid.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in rows:
        for part in _parts(_uniform(options, names, batch)):
            if waiting and waiting_bytes + part.nbytes > limits.FRAME_TARGET_BYTES:
                yield _groups(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(part)
            waiting_bytes += part.nbytes
    if waiting:
        yield _groups(waiting)


def by_edge(
    endpoints: list[str], rows: Iterable[pa.RecordBatch]
) -> dict[str, list[pa.RecordBatch]]:
    """The rows of each edge, by the column `edge`.

    Raises:
        SchemaError: A row has no edge.
        InvalidArgumentError: The endpoint of a row is none of the query's, or not UTF-8.
    """
    found: dict[str, list[pa.RecordBatch]] = {name: [] for name in endpoints}
    for batch in rows:
        names = batch.column(EDGE).cast(pa.string())
        check_text(EDGE, names)
        for name in names.unique().to_pylist():
            if name is None:
                raise SchemaError(
                    "Column 'edge' is null, so these rows identify no messages. Keep the source's"
                    " column, which a join or a union may have lost, or drop these rows.",
                    column=EDGE,
                )
            if name not in found:
                raise InvalidArgumentError(
                    f"Column 'edge' is '{name}', which is none of the endpoints"
                    f" {', '.join(endpoints)}. Name the query's edges as its source does; a batch"
                    " with rows of an edge that was removed needs the source's earlier endpoints;"
                    " and a column of your own needs another name.",
                    column=EDGE,
                )
            found[name].append(batch.filter(pc.equal(names, name)))
    return found


def _uniform(options: SettleOptions, names: list[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with all four columns, checked; no reason is "", no delay is 0."""
    count = rows.num_rows
    tags = _tags(rows.column("delivery_tag"))
    arrays: dict[str, pa.Array] = {"delivery_tag": tags}
    if options.outcome is not None:
        arrays["outcome"] = pa.repeat(options.outcome, count)
    else:
        arrays["outcome"] = _outcomes(rows.column("outcome"), tags)
    if "reason" in names:
        reasons, which = _distinct(rows.column("reason"))
        short = pa.array([reason[:_REASON_CHARACTERS] for reason in reasons], pa.string())
        arrays["reason"] = short.take(which).fill_null("")
    else:
        arrays["reason"] = pa.repeat((options.reason or "")[:_REASON_CHARACTERS], count)
    if "delay" in names:
        arrays["delay"] = _delays(rows.column("delay"), tags)
    else:
        arrays["delay"] = pa.repeat(pa.scalar(options.delay_ms or 0, pa.int64()), count)
    return pa.RecordBatch.from_arrays(
        [arrays[field.name].cast(field.type) for field in _SCHEMA], schema=_SCHEMA
    )


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts of at most about a frame each."""
    if not rows.num_rows:
        return
    parts = -(-rows.nbytes // limits.FRAME_TARGET_BYTES)
    step = -(-rows.num_rows // parts)
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)


def _groups(parts: list[pa.RecordBatch]) -> list[pb.OutcomeGroup]:
    """Tags grouped by outcome, reason and delay."""
    table = pa.Table.from_batches(parts)
    if pc.count_distinct(table["delivery_tag"]).as_py() < table.num_rows:
        table = _last_of_each_tag(table)
    grouped = table.group_by(_KEYS, use_threads=False).aggregate([("delivery_tag", "list")])
    (batch,) = grouped.combine_chunks().to_batches()
    tags = batch.column("delivery_tag_list")
    keys = zip(*(batch.column(name).to_pylist() for name in _KEYS), strict=True)
    return [
        client.outcome_group(outcome, tags[at].values, reason, delay_ms)
        for at, (outcome, reason, delay_ms) in enumerate(keys)
    ]


def _last_of_each_tag(table: pa.Table) -> pa.Table:
    row = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
    numbered = table.append_column("row", pc.subtract(row, 1))
    last = numbered.group_by("delivery_tag", use_threads=False).aggregate([("row", "max")])
    return table.take(last["row_max"])


def _tags(tags: pa.Array) -> pa.Array:
    if tags.null_count:
        row = pc.index(pc.is_null(tags), pa.scalar(True)).as_py()
        raise SchemaError(
            f"Column 'delivery_tag' is null in {tags.null_count} rows (the first is row {row} of"
            " its batch), which therefore identify no messages. Keep the source's column, which a"
            " join or a union may have lost, or drop these rows.",
            column="delivery_tag",
        )
    low = pc.min(tags).as_py()
    if low is not None and low < 1:
        row = pc.index(tags, pa.scalar(low, pa.int64())).as_py()
        raise InvalidArgumentError(
            f"Column 'delivery_tag' is {low} in row {row} of its batch; tags are 1 or more. Take"
            " the column from the source as it is.",
            column="delivery_tag",
            tag=low,
        )
    return tags


def _outcomes(outcomes: pa.Array, tags: pa.Array) -> pa.Array:
    known = pc.is_in(outcomes, pa.array(OUTCOMES, outcomes.type))  # false for null
    if not pc.all(known).as_py() and len(known):
        row = pc.index(known, pa.scalar(False)).as_py()
        (found,) = _distinct(outcomes.slice(row, 1))[0] or (None,)
        tag = tags[row].as_py()
        what = f"Column 'outcome' is {_shown(found)} for delivery tag {tag}"
        if found is None:
            raise SchemaError(
                f"{what}. A settled row needs an outcome: filter out the other rows, which are"
                " accepted with their batch.",
                column="outcome",
                tag=tag,
            )
        near = difflib.get_close_matches(found.strip().lower(), OUTCOMES, n=1, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InvalidArgumentError(
            f"{what}; it takes {', '.join(OUTCOMES)}.{hint}", column="outcome", tag=tag
        )
    return outcomes


def _delays(delays: pa.Array, tags: pa.Array) -> pa.Array:
    """Milliseconds; 0 for null."""
    if not pa.types.is_integer(delays.type):
        return _text_delays(delays, tags)
    wrong = pc.or_(pc.less(delays, 1), pc.greater(delays.cast(pa.int64()), limits.MAX_TTL_MS))
    if pc.any(wrong).as_py():
        row = pc.index(wrong, pa.scalar(True)).as_py()
        raise _wrong_delay(delays[row].as_py(), tags[row].as_py())
    return delays.cast(pa.int64()).fill_null(0)


def _text_delays(delays: pa.Array, tags: pa.Array) -> pa.Array:
    texts, which = _distinct(delays)
    found: list[int] = []
    for code, text in enumerate(texts):
        try:
            found.append(values.delay("delay", text))
        except InvalidArgumentError:
            row = pc.index(which, pa.scalar(code, which.type)).as_py()
            raise _wrong_delay(text, tags[row].as_py()) from None
    return pa.array(found, pa.int64()).take(which).fill_null(0)


def _distinct(texts: pa.Array) -> tuple[list[str], pa.Array]:
    """The distinct texts of a column, and each row's index into them.

    Spark passes bytes that are not UTF-8, as from a body cast to a string; Arrow refuses them.
    """
    encoded = texts.cast(pa.binary()).dictionary_encode()
    return [
        text.decode(errors="replace") for text in encoded.dictionary.to_pylist()
    ], encoded.indices


def _wrong_delay(found: object, tag: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Column 'delay' is {_shown(found)} for delivery tag {tag}; it takes"
        f" {values.DELAYS}. Null means the delay of the queue.",
        column="delay",
        tag=tag,
    )


def _shown(value: Any) -> str:
    """A value as shown in a message, long texts truncated."""
    if isinstance(value, str):
        return f"'{value[:40]}{'...' if len(value) > 40 else ''}'"  # noqa: PLR2004
    return "null" if value is None else str(value)


def missing(name: str, names: list[str]) -> SchemaError:
    """The error for a required column that is not among `names`, the columns of the rows."""
    remedy = (
        f"Keep the source's column '{name}' in the query: it identifies the messages."
        if name in {"delivery_tag", EDGE}
        else "Add it, or settle all rows with one outcome: settle(df, 'rejected'),"
        " .option('settle', 'rejected')."
    )
    return SchemaError(
        f"The column '{name}' is missing; the rows have {', '.join(names) or 'no columns'}."
        f" {remedy}",
        column=name,
    )


def _set_by_option(options: SettleOptions) -> set[str]:
    """The columns whose value is set by option, for all rows."""
    given = {"outcome": options.outcome, "reason": options.reason, "delay": options.delay_ms}
    return {name for name, value in given.items() if value is not None}


def _set_twice(name: str) -> SchemaError:
    option = _option(name)
    remedy = "settle by column" if name == "outcome" else f"leave '{option}' out"
    return SchemaError(
        f"Option '{option}' sets for all rows what the column '{name}' sets for each row; one of"
        f" the two would be ignored. Drop the column, or {remedy}.",
        column=name,
        option=option,
    )


def _option(name: str) -> str:
    return "settle" if name == "outcome" else name
