"""Which edge of a write a row goes to; the commit of several edges is in tests/model."""

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ackq.client import Broker
from ackq.errors import SchemaError
from ackq.spark.options.options import SinkOptions
from ackq.spark.sink.edges import home_of, split
from ackq.spark.sink.rows import RoutedBatch, RowMapping

EDGES = ["a:1", "b:1", "c:1"]


def placed(parts, shard_by="", label="partition 0"):
    """The values of the last column of each edge's rows, in order."""
    found = {}
    for name, part in split(EDGES, shard_by, label, parts):
        found.setdefault(name, []).extend(part.batch.columns[-1].to_pylist())
    return found


def part(**columns):
    return RoutedBatch(pa.record_batch(columns), "", "")


def test_equal_keys_are_on_one_edge_in_order():
    """K14: in every task and batch; a row without a value has an edge, too."""
    keys = [f"k{number % 7}" for number in range(50)] + [None, None]
    rows = part(routing_key=keys, body=list(range(52)))
    one = placed([rows, rows])
    again = placed([rows], label="partition 9")
    assert {name: found[: len(found) // 2] for name, found in one.items()} == again
    assert sorted(number for found in again.values() for number in found) == list(range(52))
    homes = {(keys[number], name) for name, found in again.items() for number in found}
    assert (len(homes), len(again)) == (8, 3)
    assert all(found == sorted(found) for found in again.values())
    by_id = placed([part(message_id=keys, body=list(range(52)))], shard_by="message_id")
    assert by_id == again


def test_rows_without_a_key_go_in_turn():
    """K14: whole batches, beginning at another edge for another task."""
    parts = [part(body=[number]) for number in range(6)]
    first, second = (placed(parts, label=f"partition {number}") for number in (0, 1))
    assert sorted(map(len, first.values())) == sorted(map(len, second.values())) == [2, 2, 2]
    starts = {next(split(EDGES, "", f"partition {number}", parts))[0] for number in range(30)}
    assert starts == set(EDGES)


def test_the_home_does_not_depend_on_the_order():
    """K14: a restart that names the edges in another order asks the same home."""
    homes = [home_of(f"query {number}", "a:1,b:1,c:1") for number in range(50)]
    assert set(homes) == set(EDGES)
    assert homes == [home_of(f"query {number}", "c:1,a:1,b:1") for number in range(50)]


@pytest.mark.parametrize("name", ["body", "message_id", "queue"])
def test_shard_by_names_a_column_with_text(name):
    """K14: a column that the rows do not have, or that is no text of a message, is refused."""
    fields = [StructField("body", BinaryType()), StructField("queue", StringType())]
    fields.append(StructField("ttl_ms", LongType()))
    options = SinkOptions((Broker("a:1"), Broker("b:1")), shard_by=name)
    with pytest.raises(SchemaError, match=f"'shardBy' is '{name}'"):
        RowMapping.plan(options, StructType(fields))


@pytest.mark.parametrize("by", ["option", "column"])
def test_shard_by_a_routing_key_that_is_not_sent(by):
    """K14: the rows' routing keys decide on nothing where a queue's name takes their place."""
    names = ("routing_key", *(["queue"] if by == "column" else []))
    fields = [StructField("body", BinaryType()), *(StructField(n, StringType()) for n in names)]
    brokers = (Broker("a:1"), Broker("b:1"))
    queue = SinkOptions(brokers, shard_by="routing_key", queue="q" if by == "option" else None)
    with pytest.raises(SchemaError, match="the rows' routing keys are not sent"):
        RowMapping.plan(queue, StructType(fields))
    exchange = SinkOptions(brokers, shard_by="routing_key", exchange="x")
    if by == "option":
        assert RowMapping.plan(exchange, StructType(fields)).routing.key_column == "routing_key"
