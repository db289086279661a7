"""A batch read of accepted batches, with a real Spark and broker (S13)."""

import pytest
from pyspark.errors import PySparkException

from tests.spark.ledger import N


def test_a_retained_batch_is_read_as_the_query_saw_it(kit):
    """S13: by number and by time, in parallel, read only."""
    kit.declare("in")
    kit.publish("in", *N)
    seen = {}

    def keep(df, batch):
        seen[batch] = sorted(map(tuple, df.collect()), key=str)

    source = kit.source("in", session="orders", retain="1h", maxMessagesPerTrigger=4)
    kit.finish(kit.each(source, "cp", keep))
    seen = {batch: rows for batch, rows in seen.items() if rows}
    info = kit.admin.session("orders")
    assert info.retained_batches == len(seen) > 1

    def retained(**options):
        reader = kit.spark.read.format("ackq").options(
            endpoint=kit.broker.endpoint, session="orders", **options
        )
        return sorted(map(tuple, reader.load().collect()), key=str)

    assert {batch: retained(batch=batch, minPartitions=2) for batch in seen} == seen
    everything = sorted((row for rows in seen.values() for row in rows), key=str)
    assert retained() == retained(**{"from": "2020-01-01T00:00Z"}) == everything
    assert retained(to="2020-01-01T00:00Z") == []
    with pytest.raises(PySparkException, match="is not retained: "):
        retained(batch=99)
    assert kit.depth("in") == (0, 0, 0)
