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
    ("given", "have", "expected"),
    [
        ({"queue": "q"}, set(), Routing("", None, "q")),
        ({"queue": "q"}, {"queue", "exchange", "routing_key"}, Routing("", None, "q")),
        ({}, {"queue"}, Routing("", "queue")),
        ({}, {"queue", "routing_key"}, Routing("", "queue")),
        ({"exchange": "e"}, set(), Routing("e", None, "")),
        ({"exchange": "e"}, {"queue", "routing_key"}, Routing("e", "routing_key")),
        ({"exchange": "e", "routing_key": "k"}, {"routing_key"}, Routing("e", None, "k")),
        ({}, {"exchange", "routing_key"}, Routing(None, "routing_key")),
        ({"routing_key": "k"}, {"exchange"}, Routing(None, None, "k")),
    ],
)
def test_routing(given, have, expected):
    """The destination of rows follows from options first, then from columns."""
    assert routing(SinkOptions(HERE, **given), have) == expected


@pytest.mark.parametrize(
    ("given", "have", "part"),
    [
        ({}, set(), "no destination"),
        ({}, {"routing_key"}, "no destination"),
        ({}, {"queue", "exchange"}, "both set the destination"),
        ({"routing_key": "k"}, {"queue"}, "needs an exchange"),
    ],
)
def test_routing_refused(given, have, part):
    """A write without exactly one way to route its rows is refused before it starts."""
    with pytest.raises(InvalidArgumentError, match=part):
        routing(SinkOptions(HERE, **given), have)


def test_constant_address():
    """With the option `queue` the routing columns of forwarded rows are dropped."""
    mapping = RowMapping.plan(SinkOptions(HERE, queue="q"), of("body", "queue", "routing_key"))
    rows = batch(body=[b"1"], queue=["from"], routing_key=["k"])
    assert list(mapping.messages(rows)) == [RoutedBatch(batch(body=[b"1"]), "", "q")]


def test_queue_column():
    """The column `queue` addresses each row through the default exchange."""
    mapping = RowMapping.plan(SinkOptions(HERE), of("body", "queue"))
    rows = batch(body=[b"1", b"2"], queue=["a", "b"])
    assert list(mapping.messages(rows)) == [
        RoutedBatch(batch(body=[b"1", b"2"], routing_key=["a", "b"]), "", "")
    ]


def test_exchange_column():
    """Rows are split by exchange, and keep their order within each exchange."""
    mapping = RowMapping.plan(SinkOptions(HERE), of("body", "exchange", "routing_key"))
    rows = batch(body=[b"1", b"2", b"3"], exchange=["x", "y", "x"], routing_key=["a", "b", "c"])
    assert list(mapping.messages(rows)) == [
        RoutedBatch(batch(body=[b"1", b"3"], routing_key=["a", "c"]), "x", ""),
        RoutedBatch(batch(body=[b"2"], routing_key=["b"]), "y", ""),
    ]


@pytest.mark.parametrize("name", ["queue", "exchange"])
def test_row_without_address(name):
    """A row whose queue or exchange is null fails its task; the error names the row."""
    mapping = RowMapping.plan(SinkOptions(HERE), of("body", name))
    rows = batch(body=[b"1", b"2"], **{name: ["a", None]})
    with pytest.raises(SchemaError, match="row 1 of its batch") as caught:
        list(mapping.messages(rows))
    assert caught.value.fields["column"] == name


def test_row_without_body():
    """A row whose body is null fails its task; the error names the row."""
    mapping = RowMapping.plan(SinkOptions(HERE, queue="q"), of("body"))
    with pytest.raises(SchemaError, match=r"null in 1 rows .*row 1 of its batch.*may be empty"):
        list(mapping.messages(batch(body=[b"1", None])))


def test_persistent_option_beats_column():
    """P12: the option sets the delivery mode of every row."""
    mapping = RowMapping.plan(
        SinkOptions(HERE, queue="q", persistent=False), of("body", "persistent")
    )
    rows = batch(body=[b"1"], persistent=[True])
    assert list(mapping.messages(rows)) == [
        RoutedBatch(batch(body=[b"1"], persistent=[False]), "", "q")
    ]


def test_rows_in_place_of_a_batch():
    """K13: a Spark that passes rows instead of Arrow batches is refused with the remedy."""
    plan = RowMapping(("body",), Routing("", None, "q"), None)
    with pytest.raises(UnsupportedError, match=r"passes the sink a Row .* foreachBatch"):
        list(plan.messages(Row(body=b"1")))


def test_no_rows():
    """An empty batch makes no messages."""
    mapping = RowMapping.plan(SinkOptions(HERE, queue="q"), of("body"))
    assert list(mapping.messages(batch(body=[]))) == []
