"""A batch read of accepted batches, and a rewind, with a real Spark and broker (S13, S14)."""

import pytest
from pyspark.errors import PySparkException


def test_a_retained_batch_is_read_as_the_query_saw_it(kit):
    """S13: by number and by time, in parallel, read only."""
    kit.fill("in")
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


def test_a_query_reads_again(kit):
    """S14, K15: a rewind, then a new checkpoint and table: each message once more each time."""
    kit.fill("in")
    batches = {}

    def keep(df, batch):
        rows = df.selectExpr("string(body)", "redelivered", "headers['ackq-rewound']").collect()
        batches.setdefault(batch, []).extend(map(tuple, rows))

    def read(checkpoint, **options):
        batches.clear()
        source = kit.source("in", session="orders", retain="1h", maxMessagesPerTrigger=4, **options)
        kit.finish(kit.each(source, checkpoint, keep))
        return sorted(row for rows in batches.values() for row in rows)

    bodies = [body for body, *_ in read("cp", startFrom="earliest")]
    last = max(batch for batch, rows in batches.items() if rows)
    then = {body: str(batch) for batch, rows in batches.items() for body, *_ in rows}
    done = kit.admin.rewind_session("orders", batch=last)
    again = [(body, True, str(last)) for body in bodies if then[body] == str(last)]
    assert (done.first_batch, done.messages) == (last, len(again))
    assert read("cp", startFrom="earliest") == again
    assert min(batches) > last
    assert [(body, told) for body, told, _ in read("new", startFrom="earliest")] == [
        (body, True) for body in bodies
    ]
    assert kit.depth("in") == (0, 0, 0)
