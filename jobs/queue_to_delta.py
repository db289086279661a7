"""Streams a queue into a Delta table; without arguments, the flights of 2013.

Invariant: exit status 0 means that every count was taken where it belongs - at the publisher, at
the broker, in the table - and that they agree.

    python jobs/queue_to_delta.py
    python jobs/queue_to_delta.py --endpoint HOST:PORT --queue Q --table PATH --checkpoint PATH
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import ackq_broker
from ackq.client import Admin
from kit import flights, jobkit, jsonkit
from kit.jobkit import Streamed, Workspace, say

BATCH_MESSAGES: Final = 100_000
# What a parsed table keeps of a message beside its body; the broker sends nothing else.
MESSAGE_COLUMNS: Final = (
    "body BINARY, message_id STRING, routing_key STRING, published_at TIMESTAMP"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    args = parse(arguments)
    job = demonstrate if args.endpoint is None else drain
    return jobkit.run("queue-to-delta", lambda work: job(args, work), verbose=args.verbose)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = argparse.ArgumentParser(
        description="Stream a queue into a Delta table. Without --endpoint: start a broker, "
        "publish the 336,776 flights of 2013, stream them, and check that each is there once.",
        epilog=jobkit.EXIT_STATUS,
    )
    add = parser.add_argument
    add(
        "--endpoint",
        metavar="HOST:PORT",
        help="a running broker; without it the job starts one of its own",
    )
    add("--queue", help="the queue to read")
    add("--table", metavar="PATH", help="the Delta table; without --endpoint: a temporary one")
    add(
        "--checkpoint",
        metavar="PATH",
        help="the checkpoint folder; it belongs to this queue and table for good",
    )
    add("--trigger", type=jobkit.trigger, default="availableNow", help=jobkit.TRIGGER_HELP)
    add(
        "--json-schema",
        metavar="DDL",
        help="parse the body as JSON into these columns, for example 'id BIGINT, name STRING'; a "
        "body that is not one JSON object of them goes, as it came, to the column 'unparsed'. "
        "Default: store messages as they are",
    )
    add("--option", **jobkit.option_argument("the ackq source"))
    add("--limit", type=jobkit.positive, help="without --endpoint: only so many flights")
    add("--verbose", action="store_true", help="leave Spark's log on the screen")
    args = parser.parse_args(arguments)
    if args.endpoint is None:
        stray = [name for name in ("queue", "checkpoint", "json_schema") if getattr(args, name)]
        if stray or args.trigger != {"availableNow": True}:
            parser.error("--queue, --checkpoint, --trigger and --json-schema need --endpoint")
        if args.table and Path(args.table).exists():
            parser.error(f"--table {args.table} exists; the demonstration counts a new table")
    elif not (args.queue and args.table and args.checkpoint):
        parser.error("--endpoint needs --queue, --table and --checkpoint")
    elif args.limit:
        parser.error("--limit is for the flights, which are published without --endpoint only")
    return args


# --- the two ways to run ---


def demonstrate(args: argparse.Namespace, work: Workspace) -> int:
    """Publish the flights to a broker of this process and reconcile publisher, broker and table."""
    table = args.table or str(work.folder / "table")
    data = flights.load(args.limit)
    with (
        jobkit.spark_session("queue_to_delta", work.log) as spark,
        ackq_broker.embedded(data=work.folder / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        say(f"A broker is up at {broker.endpoint}.")
        carriers = flights.declare(admin, data)
        say(f"Publishing {len(data):,} flights of {carriers} carriers ...")
        sent = flights.publish(broker.endpoint, data)
        messages = source(spark, broker.endpoint, flights.QUEUE, args.option, parsed=True)
        rows = parse_json(messages, flights.JSON_SCHEMA)
        jobkit.follow(start(rows, table, str(work.folder / "checkpoint"), args.trigger))
        stored = spark.read.format("delta").load(table)
        show_routes(stored)
        delta_rows, duplicates = jobkit.count_rows(stored)
        queue = admin.queue(flights.QUEUE)
    line, agree = jobkit.reconcile(
        equal={
            "published": sent.published,
            "confirmed": sent.confirmed,
            "accepted": queue.accepted,
            "delta_rows": delta_rows,
        },
        zero={"unacked": queue.unacked, "duplicates": duplicates},
    )
    say(line)
    return 0 if agree else 1


def drain(args: argparse.Namespace, work: Workspace) -> int:
    """Stream a queue of a running broker and reconcile what this run can know."""
    with (
        jobkit.spark_session("queue_to_delta", work.log) as spark,
        Admin(args.endpoint) as admin,
    ):
        before = admin.queue(args.queue)
        say(f"Queue '{args.queue}': {before.ready:,} ready, {before.unacked:,} unacked.")
        parsed = bool(args.json_schema)
        messages = source(spark, args.endpoint, args.queue, args.option, parsed=parsed)
        rows = parse_json(messages, args.json_schema) if parsed else messages
        rows_before, _ = count_table(spark, args.table)
        done = jobkit.follow(start(rows, args.table, args.checkpoint, args.trigger))
        rows_after, duplicates = count_table(spark, args.table)
        after = admin.queue(args.queue)
    if "once" in args.trigger and after.unacked:
        say(f"{after.unacked:,} messages wait for the next start, which accepts a single batch.")
    line, agree = settle_up(
        done,
        delta_rows=rows_after - rows_before,
        duplicates=duplicates,
        shown={
            "accepted": after.accepted - before.accepted,
            "ready": after.ready,
            "unacked": after.unacked,
        },
    )
    say(line)
    return 0 if agree else 1


def settle_up(
    done: Streamed, *, delta_rows: int, duplicates: int, shown: Mapping[str, int]
) -> tuple[str, bool]:
    """The line of a run on a queue of others, and whether it is OK.

    Only what this run answers for is judged: the rows it read are in the table, each once. Others
    may publish to the queue and read from it, so the broker's counts are only shown. A batch that
    an earlier run wrote, but did not record in the checkpoint, is read again and not written again.
    """
    agree = delta_rows in {done.rows, done.rows - done.replayed} and not duplicates
    counts = {
        "read": done.rows,
        "replayed": done.replayed,
        "delta_rows": delta_rows,
        **shown,
        "duplicates": duplicates,
    }
    return jobkit.line(counts, agree=agree), agree


# --- the steps ---


def source(
    spark: SparkSession, endpoint: str, queue: str, options: list[tuple[str, str]], *, parsed: bool
) -> DataFrame:
    """The queue as a stream; of the columns, for a body to be parsed, only those that are kept."""
    reader = (
        spark.readStream.format("ackq")
        .option("endpoint", endpoint)
        .option("queue", queue)
        .option("maxMessagesPerTrigger", BATCH_MESSAGES)
        .options(**dict(options))
    )
    return (reader.schema(MESSAGE_COLUMNS) if parsed else reader).load()


def parse_json(messages: DataFrame, ddl: str) -> DataFrame:
    """Typed columns from the JSON body; one that does not fit is kept as it came in `unparsed`.

    Of a body that is not one JSON object all columns are null, of another those that do not fit.
    """
    body = F.col("body")
    rows = messages.withColumn("sound", jsonkit.flaw(body).isNull())
    rows = rows.withColumn("json", F.when(F.col("sound"), jsonkit.parsed(body, ddl)))
    fits = F.col("sound") & F.col("json")[jsonkit.UNFIT].isNull()
    return rows.select(
        "message_id",
        "routing_key",
        "published_at",
        *(F.col("json")[name].alias(name) for name in StructType.fromDDL(ddl).names),
        F.when(~fits, body).alias("unparsed"),
    )


def start(rows: DataFrame, table: str, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    """The query that appends to the Delta table."""
    writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoint)
    return writer.outputMode("append").trigger(**trigger).start(table)


def count_table(spark: SparkSession, table: str) -> tuple[int, int]:
    """As `jobkit.count_rows`; nothing when the table is not there yet."""
    if not jobkit.has_table(spark, table):
        return 0, 0
    return jobkit.count_rows(spark.read.format("delta").load(table))


def show_routes(stored: DataFrame) -> None:
    """Print the ten busiest routes of the table."""
    busiest = (
        stored.groupBy("origin", "dest")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("delay"))
        .orderBy(F.desc("flights"), "origin", "dest")
        .limit(10)
        .collect()
    )
    say("The ten busiest routes, from the table:")
    for route in busiest:
        say(
            f"  {route.origin} -> {route.dest} {route.flights:>8,} flights, "
            f"{route.delay:5.1f} min late on average"
        )


if __name__ == "__main__":
    sys.exit(main())
