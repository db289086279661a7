"""Settling from threads of a foreachBatch, in which Spark knows neither session nor query."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from ackq.spark import settle

ODD = "cast(cast(body as string) as int) % 2 = 1"


@pytest.mark.parametrize("inherits", [True, False], ids=["inheriting", "plain"])
def test_settle_in_a_thread(settled, inherits):
    """K9, S6: in a thread the format is found; its query is too where it inherits, or is named."""
    left = []

    def act(rows, _batch_id):
        def work():
            named = {} if inherits else {"session": "job"}
            endpoint = settled.broker.endpoint
            settle(rows.filter(ODD), "rejected", reason="odd", endpoint=endpoint, **named)
            left.append(SparkSession.getActiveSession())

        target = inheritable_thread_target(rows.sparkSession)(work) if inherits else work
        with ThreadPoolExecutor(1) as pool:
            pool.submit(target).result()

    # Which session a batch is of is known once it has rows.
    rows = settled.source("in", session="job")
    settled.run(settled.each(rows, "cp", lambda r, batch_id: batch_id and act(r, batch_id)))
    assert settled.dead_letters() == [(b"%d" % i, "odd") for i in range(1, 10, 2)]
    assert settled.depth("in") == (0, 0, 0)
    assert left == [None]
