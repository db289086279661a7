"""Rows become routed messages; an option overrides the column of the same meaning."""

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructField, StructType

from ackq.client import Broker
from ackq.errors import InvalidArgumentError, SchemaError, UnsupportedError
from ackq.spark.options.options import SinkOptions
from ackq.spark.sink.rows import RoutedBatch, Routing, RowMapping, routing

HERE = Broker("b:1")


def of(*names):
    kinds = {"body": BinaryType(), "persistent": BooleanType()}
    return StructType([StructField(name, kinds.get(name, StringType())) for name in names])


def batch(**arrays):
    return pa.RecordBatch.from_pydict(
        {n: pa.array(v, pa.binary() if n == "body" else None) for n, v in arrays.items()}
    )


@pytest.mark.parametrize(
    ("given", "have", "part"),
    [
        ({}, {"routing_key"}, "no destination"),
        ({}, {"queue", "exchange"}, "both set the destination"),
        ({"routing_key": "k"}, {"queue"}, "needs an exchange"),
    ],
)
def test_routing_refused(given, have, part):
    """A write without exactly one way to route its rows is refused before it starts."""
    with pytest.raises(InvalidArgumentError, match=part):
        routing(SinkOptions((HERE,), **given), have)


ONE, TWO = {"body": [b"1"]}, {"body": [b"1", b"2"]}
THREE = {"body": [b"1", b"2", b"3"], "exchange": [*"xyx"], "routing_key": [*"abc"]}
ODD = {"body": [b"1", b"3"], "routing_key": ["a", "c"]}
EVEN = {"body": [b"2"], "routing_key": ["b"]}
MODE = {"queue": "q", "persistent": False}


@pytest.mark.parametrize(
    ("given", "columns", "expected"),
    [
        ({"queue": "q"}, {**ONE, "queue": ["from"], "routing_key": ["k"]}, [(ONE, "", "q")]),
        ({}, {**TWO, "queue": ["a", "b"]}, [({**TWO, "routing_key": ["a", "b"]}, "", "")]),
        ({}, THREE, [(ODD, "x", ""), (EVEN, "y", "")]),
        (MODE, {**ONE, "persistent": [True]}, [({**ONE, "persistent": [False]}, "", "q")]),
        ({"queue": "q"}, {"body": []}, []),
    ],
    ids=["a constant queue", "by queue", "by exchange", "P12: the option's mode", "no rows"],
)
def test_rows_become_messages(given, columns, expected):
    """P12: options beat columns; rows are split by exchange, in order within each."""
    mapping = RowMapping.plan(SinkOptions((HERE,), **given), of(*columns))
    made = [RoutedBatch(batch(**rows), *address) for rows, *address in expected]
    assert list(mapping.messages(batch(**columns))) == made


@pytest.mark.parametrize(
    ("given", "name", "values", "said"),
    [
        ({}, "queue", ["a", None], "row 1 of its batch"),
        ({"queue": "q"}, "body", [b"1", None], r"null in 1 rows .*row 1 of its .*may be empty"),
    ],
)
def test_row_without_address_or_body(given, name, values, said):
    """A row whose queue, exchange or body is null fails its task; the error names the row."""
    columns = TWO | {name: values}
    mapping = RowMapping.plan(SinkOptions((HERE,), **given), of(*columns))
    with pytest.raises(SchemaError, match=said) as caught:
        list(mapping.messages(batch(**columns)))
    assert caught.value.fields["column"] == name


@pytest.mark.parametrize("name", ["queue", "exchange"])
def test_an_address_that_is_no_text(name):
    """P8: refused with the column as the user knows it, and the row."""
    bad = pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff"]).buffers()[1:])
    mapping = RowMapping.plan(SinkOptions((HERE,)), of("body", name))
    with pytest.raises(InvalidArgumentError, match=f"'{name}' has text .* not UTF-8 in row 1"):
        list(mapping.messages(batch(body=[b"1", b"2"], **{name: bad})))


def test_rows_in_place_of_a_batch():
    """K13: a Spark that passes rows instead of Arrow batches is refused with the remedy."""
    plan = RowMapping(("body",), Routing("", None, "q"), None)
    with pytest.raises(UnsupportedError, match=r"passes the sink a Row .* foreachBatch"):
        list(plan.messages(Row(body=b"1")))
