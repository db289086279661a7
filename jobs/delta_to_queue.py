"""Publishes the rows of a Delta table to a queue or exchange; without arguments, a demonstration.

Invariant: a row of the table is one message, however often the job is stopped and started again
with the same checkpoint (K3), or repeated in batch with the same txnAppId and txnVersion (K12).

    python jobs/delta_to_queue.py
    python jobs/delta_to_queue.py --endpoint HOST:PORT --table PATH --queue Q --checkpoint PATH
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ackq_broker
from ackq.client import Admin
from kit import flights, jobkit
from kit.jobkit import JobError, Workspace, say


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    args = parse(arguments)
    job = demonstrate if args.endpoint is None else publish
    return jobkit.run("delta-to-queue", lambda work: job(args, work), verbose=args.verbose)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = argparse.ArgumentParser(
        description="Publish the rows of a Delta table, each once. Without --endpoint: start a "
        "broker, make a table of the 336,776 flights of 2013, publish it, and read it back.",
        epilog=jobkit.EXIT_STATUS,
    )
    add = parser.add_argument
    add("--endpoint", metavar="HOST:PORT", help="a running broker; without it the job starts one")
    add("--table", metavar="PATH", help="the Delta table")
    add("--queue", help="publish to this queue ...")
    add("--exchange", help="... or to this exchange, by routing key")
    add("--checkpoint", metavar="PATH", help="the checkpoint; it belongs to this table and target")
    add("--trigger", type=jobkit.trigger, default="availableNow", help=jobkit.TRIGGER_HELP)
    add(
        "--batch",
        action="store_true",
        help="publish the table as it is now, without a checkpoint; with --option txnAppId=NAME "
        "--option txnVersion=N, a repetition publishes nothing",
    )
    add("--body-column", metavar="NAME", help="the message body; default: the whole row as JSON")
    add("--routing-key-column", metavar="NAME", help="the routing key, with --exchange")
    add("--message-id-column", metavar="NAME", help="the message id")
    add(
        "--max-message-bytes",
        type=jobkit.positive,
        metavar="N",
        help="no message is larger than about N bytes: makes publishing faster",
    )
    add("--option", **jobkit.option_argument("the ackq sink"))
    add("--limit", type=jobkit.positive, help="without --endpoint: only so many flights")
    add("--verbose", action="store_true", help="leave Spark's log on the screen")
    args = parser.parse_args(arguments)
    _check(parser, args)
    return args


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.endpoint is None:
        given = {name for name, value in vars(args).items() if value != parser.get_default(name)}
        stray = given - {"trigger", "option", "limit", "verbose"}
        if stray or args.trigger != jobkit.trigger("availableNow"):
            parser.error("without --endpoint only --limit, --option and --verbose have a meaning")
    elif args.limit:
        parser.error("--limit is for the demonstration, which runs without --endpoint")
    elif not args.table or bool(args.queue) == bool(args.exchange):
        parser.error("--endpoint needs --table, and --queue or --exchange")
    elif bool(args.batch) == bool(args.checkpoint):
        parser.error("--endpoint needs --checkpoint, or --batch")
    elif args.queue and args.routing_key_column:
        parser.error("--routing-key-column needs --exchange: a queue is its own routing key")


# --- the two ways to run ---


def demonstrate(args: argparse.Namespace, work: Workspace) -> int:
    """Publish a table of the flights to a broker of this process, and read the queue back."""
    args.table = str(work.folder / "table")
    args.exchange, args.queue = flights.EXCHANGE, None
    args.checkpoint = str(work.folder / "checkpoint")
    args.message_id_column, args.routing_key_column = "message_id", "routing_key"
    data = flights.load(args.limit)
    with (
        jobkit.spark_session("delta_to_queue", work.log, flights.MAX_MESSAGE_BYTES) as spark,
        ackq_broker.embedded(data=work.folder / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        args.endpoint = broker.endpoint
        say(f"A broker is up at {broker.endpoint}.")
        flights.declare(admin, data)
        say(f"Making a table of {len(data):,} flights ...")
        flights.table(spark, data).write.format("delta").save(args.table)
        rows, _ = jobkit.count_rows(spark.read.format("delta").load(args.table))
        streamed = stream(spark, args)
        say("Reading the queue ...")
        queued, duplicates = jobkit.count_rows(browse(spark, broker.endpoint, flights.QUEUE))
        queue = admin.queue(flights.QUEUE)
    line, agree = jobkit.reconcile(
        equal={
            "delta_rows": rows,
            "streamed": streamed,
            "published": queue.published,
            "ready": queue.ready,
            "queue_rows": queued,
        },
        zero={"unacked": queue.unacked, "duplicates": duplicates},
    )
    say(line)
    return 0 if agree else 1


def publish(args: argparse.Namespace, work: Workspace) -> int:
    """Publish a table to a running broker; an unconfirmed row fails the query, and so the job.

    The line at the end counts the rows that this run read. A batch that an earlier run published,
    but did not record in the checkpoint, is among them and was not published again.

    Raises:
        JobError: There is no table.
    """
    with (
        jobkit.spark_session("delta_to_queue", work.log, args.max_message_bytes) as spark,
        Admin(args.endpoint) as admin,
    ):
        if not jobkit.has_table(spark, args.table):
            raise JobError(
                f"There is no Delta table at {args.table}: --table names an existing one."
            )
        before = admin.queue(args.queue).published if args.queue else 0
        rows = write(spark, args) if args.batch else stream(spark, args)
        into = f" published={admin.queue(args.queue).published - before}" if args.queue else ""
    say(f"rows={rows}{into} unconfirmed=0 OK")
    return 0


# --- the steps ---


def stream(spark: SparkSession, args: argparse.Namespace) -> int:
    """Publish what the table holds and gets, until the trigger ends; returns the rows read."""
    rows = spark.readStream.format("delta").load(args.table)
    writer = messages(rows, args).writeStream.format("ackq").options(**sink_options(args))
    query = writer.option("checkpointLocation", args.checkpoint).trigger(**args.trigger).start()
    return jobkit.follow(query).rows


def write(spark: SparkSession, args: argparse.Namespace) -> int:
    """Publish what the table holds now; returns its rows."""
    version = spark.sql(f"DESCRIBE HISTORY delta.`{args.table}` LIMIT 1").first()
    assert version is not None
    rows = spark.read.format("delta").option("versionAsOf", version.version).load(args.table)
    messages(rows, args).write.format("ackq").options(**sink_options(args)).mode("append").save()
    return rows.count()


def messages(rows: DataFrame, args: argparse.Namespace) -> DataFrame:
    """The message columns of the table's rows."""
    row = F.col(args.body_column) if args.body_column else F.to_json(F.struct("*"))
    columns = [row.alias("body")]
    for name in ("routing_key", "message_id"):
        column = getattr(args, f"{name}_column")
        if column:
            columns.append(F.col(column).cast("string").alias(name))
    return rows.select(columns)


def sink_options(args: argparse.Namespace) -> dict[str, str]:
    """Where the sink publishes to."""
    target = {"queue": args.queue} if args.queue else {"exchange": args.exchange}
    return {"endpoint": args.endpoint, **target, **dict(args.option)}


def browse(spark: SparkSession, endpoint: str, queue: str) -> DataFrame:
    """The messages of a queue, without consuming them."""
    return spark.read.format("ackq").option("endpoint", endpoint).option("queue", queue).load()


if __name__ == "__main__":
    sys.exit(main())
