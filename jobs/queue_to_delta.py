"""Streams a queue into a Delta table; without arguments, the flights of 2013.

Invariant: exit status 0 means that every count was taken where it belongs - at the publisher, at
the broker, in the table - and that they agree.

    python jobs/queue_to_delta.py
    python jobs/queue_to_delta.py --endpoint HOST:PORT --queue Q --table PATH --checkpoint PATH
    python jobs/queue_to_delta.py --amqp amqp://HOST --amqp-queue Q --amqp-data DIR --table PATH ...
    python jobs/queue_to_delta.py --nats nats://HOST --nats-queue STREAM/NAME --nats-data DIR ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from ackq.client import Admin, Broker
from kit import (
    arguments,
    connection,
    flights,
    json_bodies,
    queries,
    reconciliation,
    remote,
    say,
    workspace,
)
from kit.session import has_table, history, spark_session

BATCH_MESSAGES: Final = 100_000
# The columns that a parsed table needs; the broker sends no others.
MESSAGE_COLUMNS: Final = (
    "body BINARY, message_id STRING, routing_key STRING, published_at TIMESTAMP"
)


def main() -> int:
    """Runs the job; returns the exit status."""
    args = parse()
    job = drain if args.endpoint else drain_linked if args.remote else demonstrate
    return workspace.run("queue-to-delta", lambda work: job(args, work), verbose=args.verbose)


def parse(line: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = arguments.parser(
        "Stream a queue into a Delta table. Without --endpoint: start a broker, publish the "
        "336,776 flights of 2013, stream them, and check that each is in the table once."
    )
    add = parser.add_argument
    add("--queue", help="the queue to read")
    add("--table", metavar="PATH", help="the Delta table; without --endpoint: a temporary one")
    add(
        "--checkpoint",
        metavar="PATH",
        help="the checkpoint folder, of this queue and table alone",
    )
    add(
        "--json-schema",
        metavar="DDL",
        help="parse the body as JSON into these columns, for example 'id BIGINT, name STRING'; a "
        "body that is not a JSON object of these fields is stored unchanged in the column "
        "'unparsed'. A column of the message beside a field of its name begins with '_'. Default: "
        "store messages as they are",
    )
    arguments.add_query(parser, "the ackq source")
    remote.add_arguments(parser, "in")
    args = parser.parse_args(line)
    remote.check(parser, args)
    if args.remote:
        if not (args.table and args.checkpoint) or args.limit:
            kind = remote.kind_of(args)
            parser.error(f"--{kind} needs --table and --checkpoint, and takes no --limit")
    elif args.endpoint is None:
        if arguments.given(parser, args) & {"queue", "checkpoint", "trigger", "json_schema"}:
            parser.error("--queue, --checkpoint, --trigger and --json-schema need --endpoint")
        if args.table and Path(args.table).exists():
            parser.error(f"--table {args.table} exists; the demonstration counts a new table")
    elif not (args.queue and args.table and args.checkpoint):
        parser.error("--endpoint needs --queue, --table and --checkpoint")
    elif args.limit:
        parser.error("--limit is for the flights, which are published without --endpoint only")
    return args


# --- the three ways to run ---


def demonstrate(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Publishes the flights to a broker of its own; reconciles publisher, broker and table."""
    table = args.table or str(work.folder / "table")
    data = flights.load(args.limit)
    with (
        spark_session("queue_to_delta", work.log) as spark,
        workspace.own_broker(work) as (broker, admin),
    ):
        carriers = flights.declare(admin, data)
        say(f"Publishing {len(data):,} flights of {carriers} carriers ...")
        sent = flights.publish(broker, data)
        messages = source(spark, broker, flights.QUEUE, args.option, parsed=True)
        rows = parse_json(messages, flights.JSON_SCHEMA)
        queries.run(into(table, rows), str(work.folder / "checkpoint"), args.trigger)
        stored = spark.read.format("delta").load(table)
        show_routes(stored)
        delta_rows, duplicates = reconciliation.count_rows(stored)
        queue = admin.queue(flights.QUEUE)
    found = reconciliation.reconcile(
        equal={
            "published": sent.published,
            "confirmed": sent.confirmed,
            "accepted": queue.accepted,
            "delta_rows": delta_rows,
        },
        zero={"unacked": queue.unacked, "duplicates": duplicates},
    )
    return reconciliation.conclude(found)


def drain(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Streams a queue of a running broker; reconciles the counts that this run can know."""
    broker = connection.broker(args)
    with (
        spark_session("queue_to_delta", work.log) as spark,
        Admin(broker) as admin,
    ):
        before = admin.queue(args.queue)
        say(f"Queue '{args.queue}': {before.ready:,} ready, {before.unacked:,} unacked.")
        parsed = bool(args.json_schema)
        messages = source(spark, broker, args.queue, args.option, parsed=parsed)
        rows = parse_json(messages, args.json_schema) if parsed else messages
        table = Appended(spark, args.table, args.json_schema)
        done = queries.run(into(args.table, rows), args.checkpoint, args.trigger)
        delta_rows, repeated = table.by(done.query_id)
        after = admin.queue(args.queue)
    queries.say_unaccepted(after.unacked, args.trigger)
    left = after.accepted - before.accepted + after.unacked
    found = settle_up(
        done,
        delta_rows=delta_rows,
        duplicates=unexplained(repeated, told_apart=delta_rows <= left),
        shown={
            "accepted": after.accepted - before.accepted,
            "ready": after.ready,
            "unacked": after.unacked,
        },
    )
    return reconciliation.conclude(found)


def drain_linked(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Streams a queue of a remote broker through a local broker; reconciles all counts.

    With the trigger availableNow it ends when both queues are empty. The job assumes that it is the
    only consumer of the remote queue.
    """
    first = not (Path(args.checkpoint).exists() or Path(args.remote_data).exists())
    # Errors of the link and of the remote broker are reported before Spark is started.
    linked = remote.LinkedQueue(args, "in")
    say(f"Remote queue '{args.remote_queue}': {linked.before.messages:,} ready.")
    with spark_session("queue_to_delta", work.log) as spark, linked.running():
        before = linked.admin.queue(linked.name)
        parsed = bool(args.json_schema)
        messages = source(spark, linked.broker, linked.name, args.option, parsed=parsed)
        rows = parse_json(messages, args.json_schema) if parsed else messages
        table = Appended(spark, args.table, args.json_schema)
        ends = args.trigger == arguments.AVAILABLE_NOW
        done = queries.run(
            into(args.table, rows),
            args.checkpoint,
            {"processingTime": "0 seconds"} if ends else args.trigger,
            linked.drained if ends else linked.ended,
        )
        delta_rows, repeated = table.by(done.query_id)
        after = linked.admin.queue(linked.name)
        there = linked.count_there().messages
    # In a later run, messages in the remote queue may be ones that the local broker has already.
    whole = not first or done.rows >= linked.before.messages
    # What the link doubled is two messages of the local queue: only the remote one can tell.
    told_apart = first and delta_rows <= linked.before.messages
    found = settle_up(
        done,
        delta_rows=delta_rows,
        duplicates=unexplained(repeated, told_apart=told_apart),
        shown={
            "there_before": linked.before.messages,
            "there_left": there,
            "accepted": after.accepted - before.accepted,
            "ready": after.ready,
            "unacked": after.unacked,
        },
        else_agree=whole and not (there or after.ready or after.unacked),
    )
    return reconciliation.conclude(found)


def settle_up(
    done: queries.Streamed,
    *,
    delta_rows: int,
    duplicates: int,
    shown: Mapping[str, int],
    else_agree: bool = True,
) -> tuple[str, bool]:
    """The last line of a run on a shared queue, and whether it is OK.

    It is OK if the rows that this run read are in the table, each once. Others may publish to the
    queue, read from it and append to the table, so the broker's counts are only shown. A batch that
    an earlier run wrote, but did not record in the checkpoint, is read again and not written again.
    `else_agree` is the caller's verdict on the counts that are only shown.
    """
    agree = delta_rows in {done.rows, done.rows - done.replayed} and not duplicates and else_agree
    counts = {
        "read": done.rows,
        "replayed": done.replayed,
        "delta_rows": delta_rows,
        **shown,
        "duplicates": duplicates,
    }
    return reconciliation.verdict(counts, agree=agree)


def unexplained(repeated: int, *, told_apart: bool) -> int:
    """How many rows may be doubled, of those of this run that repeat a message id.

    Producers may give several messages one id. `told_apart` says that at least as many messages
    left the queue as this run appended rows, so that no two rows need be of one message.
    """
    if repeated <= 0 or not told_apart:
        return max(repeated, 0)
    say(
        f"{repeated:,} rows repeat a message id: several messages were sent with it, or another job"
        " appended it."
    )
    return 0


# --- the steps ---


def source(
    spark: SparkSession, broker: Broker, queue: str, options: list[tuple[str, str]], *, parsed: bool
) -> DataFrame:
    """The queue as a stream; if its bodies are parsed, only with the columns that are kept."""
    given = {"maxMessagesPerTrigger": str(BATCH_MESSAGES), **dict(options)}
    columns = MESSAGE_COLUMNS if parsed else None
    return queries.read_queue(spark, broker, queue, given, columns)


def parse_json(messages: DataFrame, ddl: str) -> DataFrame:
    """Typed columns from the JSON body; a body that does not fit is kept unchanged in `unparsed`.

    For a body that is not one JSON object all columns are null, for another the ones that do not
    fit. A column of the message beside a field of its name has another one (`column_beside`).
    """
    body, fields = F.col("body"), StructType.fromDDL(ddl).names
    rows = messages.withColumn("sound", json_bodies.flaw(body).isNull())
    rows = rows.withColumn("json", F.when(F.col("sound"), json_bodies.parsed(body, ddl)))
    fits = F.col("sound") & F.col("json")[json_bodies.UNFIT].isNull()
    return rows.select(
        *(
            F.col(name).alias(json_bodies.column_beside(fields, name))
            for name in ("message_id", "routing_key", "published_at")
        ),
        *(F.col("json")[name].alias(name) for name in fields),
        F.when(~fits, body).alias(json_bodies.column_beside(fields, "unparsed")),
    )


def into(table: str, rows: DataFrame) -> DataStreamWriter:
    """The write that appends to the Delta table."""
    return rows.writeStream.format("delta").outputMode("append").option("path", table)


class Appended:
    """Counts what a query appends to a Delta table from now on, beside what others append.

    Args:
        spark: Reads the table.
        path: The table, which may not exist yet.
        ddl: The fields of its rows, if these are parsed.
    """

    def __init__(self, spark: SparkSession, path: str, ddl: str | None) -> None:
        self._spark = spark
        self._path = path
        fields = StructType.fromDDL(ddl).names if ddl else []
        self._message_id = json_bodies.column_beside(fields, "message_id")
        self._first = self._repeated = 0
        if has_table(spark, path):
            self._first = history(self._spark, self._path).agg(F.max("version")).collect()[0][0] + 1
            self._repeated = self._count()[1]

    def by(self, query_id: str) -> tuple[int, int]:
        """The rows that a query appended, and how many more rows now repeat a message id."""
        if not has_table(self._spark, self._path):
            return 0, 0
        own = F.col("operationParameters")["queryId"] == query_id
        commits = (
            history(self._spark, self._path)
            .filter(own & (F.col("version") >= self._first))
            .collect()
        )
        ours = {commit.version for commit in commits}
        ends = (self._count(each)[0] for each in ours if each + 1 not in ours)
        begins = (self._count(each - 1)[0] for each in ours if each and each - 1 not in ours)
        return sum(ends) - sum(begins), self._count()[1] - self._repeated

    def _count(self, version: int | None = None) -> tuple[int, int]:
        reader = self._spark.read.format("delta")
        if version is not None:
            table = reader.option("versionAsOf", version).load(self._path)
            return table.count(), 0
        return reconciliation.count_rows(reader.load(self._path), self._message_id)


def show_routes(stored: DataFrame) -> None:
    """Prints the ten busiest routes of the table."""
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
