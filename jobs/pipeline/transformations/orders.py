"""Orders from a queue: every message in `received`, parsed in `orders`, or else in `quarantine`.

Queues divide messages between their readers, so one flow reads the queue and the other flows read
its table. Each order then goes to the queue `invoices`. Copy the project, declare both queues, set
`storage` and `orders.endpoint` in spark-pipeline.yml, and run in the copy

    spark-pipelines run --conf spark.sql.catalogImplementation=hive

After a kill the same command goes on. With `--full-refresh-all` it fills all tables again, from
what the queue's session retained (`startFrom`); the sink then writes every order again.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

spark = SparkSession.active()
ENDPOINT = spark.conf.get("orders.endpoint")
FIELDS = "id BIGINT, amount DOUBLE, unfit STRING"
FITS = "order.id IS NOT NULL AND order.unfit IS NULL"


@dp.table(comment="Every message of the queue, as it came.")
def received() -> DataFrame:
    """The only reader of the queue; its session keeps its place and what it accepted."""
    reader = spark.readStream.format("ackq").options(endpoint=ENDPOINT, queue="orders")
    reader = reader.options(session="orders-received", retain="24h", startFrom="earliest")
    return reader.schema("body BINARY, message_id STRING, published_at TIMESTAMP").load()


def parsed() -> DataFrame:
    """The messages with the fields of their bodies; `unfit` has a body that is not of these fields.

    `select` shows Spark that a flow reads `received`; after `withColumn` it would not wait for it.
    """
    text = F.col("body").cast("string")
    order = F.from_json(text, FIELDS, {"columnNameOfCorruptRecord": "unfit"})
    return spark.readStream.table("received").select("*", order.alias("order"))


@dp.table(comment="The orders.")
def orders() -> DataFrame:
    """The messages that are orders."""
    return parsed().where(FITS).select("message_id", "published_at", "order.id", "order.amount")


@dp.table(comment="The messages that are no orders, unchanged.")
def quarantine() -> DataFrame:
    """The other messages, for repair and `ackq publish`."""
    return parsed().where(f"NOT ({FITS})").select("message_id", "published_at", "body")


dp.create_sink("invoices", "ackq", {"endpoint": ENDPOINT, "queue": "invoices"})


@dp.append_flow(target="invoices")
def to_invoices() -> DataFrame:
    """One message for each order, under the message id of the order."""
    body = F.to_json(F.struct("order.id", "order.amount"))
    return parsed().where(FITS).select(body.alias("body"), "message_id")
