"""SQL: the README's statements unchanged, and Spark's own keys and tables (K9, Q5)."""

import pytest
from pyspark.errors.exceptions.base import PySparkException

from ackq.spark.engine import is_older_than
from tests.spark import cluster

README = cluster.readme_section("SQL")
VIEWS, TABLE = cluster.readme_blocks(README, "sql")


@pytest.fixture
def sql(kit):
    """Runs statements with this test's broker in place of the README's; returns the last rows."""
    kit.declare("orders", "invoices")

    def run(text):
        text = text.replace("127.0.0.1:5775", kit.broker.endpoint)
        found = [kit.spark.sql(each).collect() for each in text.split(";") if each.strip()]
        return found[-1]

    yield run
    for view in ("waiting", "outgoing"):
        kit.spark.sql(f"DROP VIEW IF EXISTS {view}")
    for table in ("messages", "described", "kept"):
        kit.spark.sql(f"DROP TABLE IF EXISTS {table}")


def given(kit, queue, **options):
    options = {"endpoint": kit.broker.endpoint, "queue": queue, **options}
    named = ", ".join(f"{name} = '{text}'" for name, text in options.items())
    return f"WITH ({named})"


def test_a_temporary_view_keeps_its_options(kit, sql):
    """A temporary view keeps its options for reading and for writing."""
    kit.publish("orders", b"1", b"2")
    sql(VIEWS)
    assert kit.bodies("invoices") == [b"1", b"2"]


def test_a_table_takes_the_options_of_each_statement(kit, sql):
    """A table takes the options of each statement, batch and stream, in SQL and from Python."""
    assert [tuple(row) for row in sql(TABLE)] == [("id-1", 1)]
    rows = kit.spark.createDataFrame([(b"two", "id-2")], "body binary, message_id string")
    options = {"endpoint": kit.broker.endpoint, "queue": "invoices"}
    rows.writeTo("messages").options(**options).append()
    assert kit.spark.read.options(**options).table("messages").count() == 2
    if is_older_than(4, 1):  # 4.0 does not parse STREAM with options
        streamed = kit.spark.readStream.options(**options, session="forward").table("messages")
    else:
        stream = given(kit, "invoices", session="forward")
        streamed = kit.spark.sql(f"SELECT * FROM STREAM messages {stream}")  # noqa: S608
    sink = streamed.writeStream.options(endpoint=kit.broker.endpoint, queue="orders")
    query = sink.option("checkpointLocation", str(kit.folder / "cp")).trigger(availableNow=True)
    ended = query.toTable("messages")
    try:
        assert ended.awaitTermination(200)
    finally:
        ended.stop()
    assert kit.bodies("orders") == [b"one", b"two"]
    options["queue"] = "orders"
    table = kit.spark.readStream.options(**options, session="rest").table("messages")
    kit.finish(kit.each(table, "cp2", lambda rows, _: rows.collect()))
    assert kit.depth("orders") == (0, 0, 0)


def test_a_table_with_every_clause_of_spark(kit, sql, tmp_path):
    """No key of Spark's own is taken for an option."""
    kit.publish("orders", b"1")
    sql(
        f"CREATE TABLE described USING ackq COMMENT 'c' LOCATION '{tmp_path}'"
        " TBLPROPERTIES ('my.property' = '1') DEFAULT COLLATION UTF8_BINARY"
    )
    rows = sql(" ".join(["SELECT body, queue FROM described", given(kit, "orders")]))
    assert [(bytes(row.body), row.queue) for row in rows] == [(b"1", "orders")]


def test_options_of_a_table_are_refused(sql):
    """The error for options of a table names the alternatives."""
    with pytest.raises(PySparkException, match=r"options endpoint, queue, .* temporary\s+view"):
        sql("CREATE TABLE kept USING ackq OPTIONS (endpoint '127.0.0.1:5775', queue 'orders')")


@pytest.mark.parametrize("statement", ["SELECT * FROM kept", "INSERT INTO kept VALUES (X'31')"])
def test_options_of_a_table_with_columns_are_missed(sql, statement):
    """Spark makes such a table without asking; a statement on it says how to give the options."""
    sql("CREATE TABLE kept (body binary) USING ackq OPTIONS (endpoint 'b:1', queue 'orders')")
    with pytest.raises(PySparkException, match=r"'endpoint' is missing.* WITH \(endpoint="):
        sql(statement)
