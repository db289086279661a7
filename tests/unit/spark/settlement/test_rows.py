"""Rows of a settling write become groups of tags; errors name the row's tag."""

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from ackq import limits
from ackq.client import Broker
from ackq.errors import InvalidArgumentError, SchemaError
from ackq.spark.options.options import SettleOptions
from ackq.spark.settlement import rows
from ackq.v1 import consuming_pb2 as pb

BROKER = Broker("b:1")
BY_COLUMN = SettleOptions((BROKER,))
KINDS = {"binary": types.BinaryType(), "double": types.DoubleType(), "int": types.IntegerType()}
KINDS |= {"long": types.LongType(), "string": types.StringType()}
ACCEPTED, FAILED = pb.OUTCOME_ACCEPTED, pb.OUTCOME_FAILED
REJECTED, RELEASED = pb.OUTCOME_REJECTED, pb.OUTCOME_RELEASED


def batch(tags, **columns):
    columns = {name: pa.array(values) for name, values in columns.items()}
    return pa.record_batch({"delivery_tag": pa.array(tags, pa.int64()), **columns})


def frames(options, *batches):
    return list(rows.frames(options, batches[0].schema.names, iter(batches)))


def groups(options, *batches):
    found = [group for frame in frames(options, *batches) for group in frame]
    return [(each.outcome, each.reason, each.delay_ms, list(each.tags)) for each in found]


def schema(ddl):
    fields = (field.split() for field in ddl.split(", "))
    return StructType([StructField(name, KINDS[kind]) for name, kind in fields])


def test_columns():
    """S6: rows with equal outcome, reason and delay share a group; null means none."""
    rows = batch(
        [1, 2, 3, 4, 5],
        outcome=["rejected", "failed", "rejected", "rejected", "released"],
        reason=["a", "a", "a", None, None],
        delay=pa.array([None, 7, None, None, None], pa.int32()),
    )
    assert frames(BY_COLUMN, rows.slice(0, 0)) == []
    assert groups(BY_COLUMN, rows) == [
        (REJECTED, "a", 0, [1, 3]),
        (FAILED, "a", 7, [2]),
        (REJECTED, "", 0, [4]),
        (RELEASED, "", 0, [5]),
    ]


def test_delays_as_texts():
    """C14: a text delay has a unit, or is in milliseconds."""
    options = SettleOptions((BROKER,), outcome="released")
    rows = batch([1, 2, 3, 4], delay=["30s", "1500", None, "30000 ms"])
    assert groups(options, rows) == [
        (RELEASED, "", 30_000, [1, 4]),
        (RELEASED, "", 1_500, [2]),
        (RELEASED, "", 0, [3]),
    ]


def test_last_row_of_a_tag_counts():
    """S6: within a call the last outcome of a tag wins, whatever group it is in."""
    rows = [
        batch([1, 2, 1], outcome=["rejected", "rejected", "accepted"]),
        batch([2, 3], outcome=["accepted", "rejected"]),
        batch([2], outcome=["rejected"]),
    ]
    found = sorted(groups(BY_COLUMN, *rows))
    assert found == [(ACCEPTED, "", 0, [1]), (REJECTED, "", 0, [2, 3])]


def test_frames_are_bounded():
    """I6: a frame has about 2 MiB of rows, however large Spark's batches are."""
    rows = 600_000
    options = SettleOptions((BROKER,), outcome="rejected")
    made = frames(options, batch(range(1, rows + 1)), batch(range(rows + 1, rows + 6)))
    assert sum(len(group.tags) for frame in made for group in frame) == rows + 5
    assert len(made) > 5
    assert max(group.ByteSize() for frame in made for group in frame) < limits.FRAME_TARGET_BYTES


def test_reasons_are_cut():
    """I6: a long reason is cut to its beginning, as an error text may hold a whole body."""
    rows = batch([1, 2], outcome=["rejected"] * 2, reason=["x" * 100_000 + "1", "x" * 100_000])
    ((_, reason, _, tags),) = groups(BY_COLUMN, rows)
    assert (len(reason), tags) == (1_024, [1, 2])


def test_reasons_that_are_no_text():
    """K8: a reason that is not UTF-8, such as a cast body, does not fail the query."""
    binary = pa.array([b"caf\xe9"], pa.binary())
    reason = pa.StringArray.from_buffers(1, binary.buffers()[1], binary.buffers()[2])
    found = groups(BY_COLUMN, batch([1], outcome=["rejected"], reason=reason))
    assert found == [(REJECTED, "caf\ufffd", 0, [1])]


NULL = r"'delivery_tag' is null in 2 rows \(the first is row 1"
NEGATIVE = "'delivery_tag' is -2 in row 1 of its batch; tags are 1 or more"
MEANT = r"'outcome' is 'reject' for delivery tag 5; it takes accepted.*mean 'rejected'\?"
INVALID = InvalidArgumentError


@pytest.mark.parametrize(
    ("tags", "changes", "error", "part"),
    [
        ([4, None, None], {}, SchemaError, NULL),
        ([4, -2], {}, INVALID, NEGATIVE),
        ([0], {}, INVALID, "'delivery_tag' is 0 in row 0"),
        ([4, 5], {"outcome": ["failed", "reject"]}, INVALID, MEANT),
        ([4, 5], {"outcome": ["failed", None]}, SchemaError, "null for delivery tag 5.*filter out"),
        ([4, 5], {"delay": [1, -1]}, INVALID, "'delay' is -1 for delivery tag 5"),
        ([4, 5], {"delay": [None, 0]}, INVALID, "'delay' is 0 .* 1 ms or more.*Null means the d"),
        ([4, 5], {"delay": [1, limits.MAX_TTL_MS + 1]}, INVALID, "tag 5.*100 years"),
        ([4, 5], {"delay": ["1s", "soon"]}, INVALID, "'soon' for delivery tag 5.* 30s"),
    ],
)
def test_wrong_rows(tags, changes, error, part):
    """S6: the error for an invalid value names tag, column and valid values."""
    with pytest.raises(error, match=part) as caught:
        frames(BY_COLUMN, batch(tags, **{"outcome": ["failed"] * len(tags)} | changes))
    assert type(caught.value) is error


CONSTANT, REASON = {"outcome": "failed"}, {"outcome": "failed", "reason": "r"}
DELAY, REJECT = {"delay_ms": 1}, {"outcome": "rejected"}


@pytest.mark.parametrize(
    ("given", "ddl", "part"),
    [
        # K8: a column that is missing, unknown or of another type.
        ({}, None, "'delivery_tag' is missing; the rows have outcome. Keep the source's"),
        ({}, "", r"'outcome' is missing; .* settle\(df, 'rejected'\)"),
        ({}, "outcome int", "'outcome' is int; expected string.*option 'settle'"),
        ({}, "outcome string, body binary", "no column 'body'; it takes deliv"),
        ({}, "outcome string, outcome string", "'outcome' appears twice"),
        # C14: one whose value an option sets for all rows, or that has no effect.
        (CONSTANT, "outcome string", "'settle' sets .* or settle by column"),
        (REASON, "reason string", "'reason' sets for all rows what"),
        (DELAY, "outcome string, delay long", "column, or leave 'delay' out"),
        (REJECT, "delay long", "'delay' has no effect with settle=rejected: it is for f"),
    ],
)
def test_wrong_columns(given, ddl, part):
    """S6, C14, K8: a column that cannot be meant is refused with the remedy."""
    wanted = "outcome string" if ddl is None else f"delivery_tag long, {ddl}".rstrip(", ")
    with pytest.raises(SchemaError, match=part):
        rows.check(SettleOptions((BROKER,), **given), schema(wanted))


def test_columns_that_are_used():
    """S6: not those of which an option sets the value, or that have no effect."""
    found = schema("delivery_tag long, outcome string, reason string, delay string")
    assert rows.check(BY_COLUMN, found) == ["delivery_tag", "outcome", "reason", "delay"]
    names = ["delivery_tag", "delay", "reason", "body"]
    fixed = SettleOptions((BROKER,), outcome="rejected", reason="r")
    assert rows.columns(fixed, names) == ["delivery_tag"]
