"""Publishes the rows of a Delta table to a queue or exchange; without arguments, a demonstration.

Invariant: a row of the table is one message, however often the job is stopped and started again
with the same checkpoint (K3), or repeated in batch with the same txnAppId and txnVersion (K12).

    python jobs/delta_to_queue.py
    python jobs/delta_to_queue.py --endpoint HOST:PORT --table PATH --queue Q --checkpoint PATH
    python jobs/delta_to_queue.py --amqp amqp://HOST --amqp-queue Q --amqp-data DIR --table PATH ...
    python jobs/delta_to_queue.py --nats nats://HOST --nats-queue STREAM --nats-data DIR ...
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ackq.client import Admin
from kit import (
    JobError,
    arguments,
    connection,
    flights,
    queries,
    reconciliation,
    remote,
    say,
    workspace,
)
from kit.session import has_table, history, spark_session


def main() -> int:
    """Runs the job; returns the exit status."""
    args = parse()
    job = publish if args.endpoint else publish_linked if args.remote else demonstrate
    return workspace.run("delta-to-queue", lambda work: job(args, work), verbose=args.verbose)


def parse(line: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = arguments.parser(
        "Publish the rows of a Delta table, each once. Without --endpoint: start a broker, make a "
        "table of the 336,776 flights of 2013, publish it, and read it back."
    )
    add = parser.add_argument
    add("--table", metavar="PATH", help="the Delta table")
    add("--queue", help="the queue to publish to")
    add("--exchange", help="the exchange to publish to, in place of --queue")
    add("--checkpoint", metavar="PATH", help="the checkpoint, of this table and target alone")
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
        type=arguments.positive,
        metavar="N",
        help="the approximate size of the largest message, which makes publishing faster",
    )
    arguments.add_query(parser, "the ackq sink")
    remote.add_arguments(parser, "out")
    args = parser.parse_args(line)
    _check(parser, args)
    return args


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    remote.check(parser, args)
    if args.remote:
        if bool(args.table) != bool(args.checkpoint) or args.batch or args.exchange:
            parser.error(
                f"--{remote.kind_of(args)} needs --table and --checkpoint, or neither to publish"
                " the flights; it takes no --batch and no --exchange"
            )
    elif args.endpoint is None:
        arguments.check_demonstration(parser, args, "limit", "option", "verbose")
    elif args.limit:
        parser.error("--limit is for the demonstration, which runs without --endpoint")
    elif not args.table or bool(args.queue) == bool(args.exchange):
        parser.error("--endpoint needs --table, and --queue or --exchange")
    elif bool(args.batch) == bool(args.checkpoint):
        parser.error("--endpoint needs --checkpoint, or --batch")
    elif args.queue and args.routing_key_column:
        parser.error(
            "--routing-key-column needs --exchange: with --queue the routing key is the queue"
        )


# --- the three ways to run ---


def demonstrate(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Publishes a table of the flights to a broker of its own, and reads the queue back."""
    args.table = str(work.folder / "table")
    args.exchange, args.queue = flights.EXCHANGE, None
    args.checkpoint = str(work.folder / "checkpoint")
    args.message_id_column, args.routing_key_column = "message_id", "routing_key"
    data = flights.load(args.limit)
    with (
        spark_session("delta_to_queue", work.log, flights.MAX_MESSAGE_BYTES) as spark,
        workspace.own_broker(work) as (args.broker, admin),
    ):
        flights.declare(admin, data)
        say(f"Making a table of {len(data):,} flights ...")
        flights.table(spark, data).write.format("delta").save(args.table)
        rows, _ = reconciliation.count_rows(spark.read.format("delta").load(args.table))
        streamed = stream(spark, args)
        say("Reading the queue ...")
        browsed = queries.browse(spark, args.broker, flights.QUEUE)
        queued, duplicates = reconciliation.count_rows(browsed)
        queue = admin.queue(flights.QUEUE)
    found = reconciliation.reconcile(
        equal={
            "delta_rows": rows,
            "streamed": streamed,
            "published": queue.published,
            "ready": queue.ready,
            "queue_rows": queued,
        },
        zero={"unacked": queue.unacked, "duplicates": duplicates},
    )
    return reconciliation.conclude(found)


def publish(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Publishes a table to a running broker; an unconfirmed row fails the query, and so the job.

    The line at the end counts the rows that this run read. A batch that an earlier run published,
    but did not record in the checkpoint, is among them and was not published again.

    Raises:
        JobError: There is no table.
    """
    args.broker = connection.broker(args)
    with (
        spark_session("delta_to_queue", work.log, args.max_message_bytes) as spark,
        Admin(args.broker) as admin,
    ):
        if not has_table(spark, args.table):
            raise JobError(
                f"There is no Delta table at {args.table}: --table names an existing one."
            )
        before = admin.queue(args.queue).published if args.queue else 0
        rows = write(spark, args) if args.batch else stream(spark, args)
        into = f" published={admin.queue(args.queue).published - before}" if args.queue else ""
    say(f"rows={rows}{into} unconfirmed=0 OK")
    return 0


def publish_linked(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Publishes a table, or else the flights, to a queue of a remote broker; reconciles all.

    The table's rows are put into the local broker's queue once each, and sent from that queue.
    Messages that the local broker still had from an earlier run are sent, too.
    """
    flown = args.table is None
    # Errors of the link and of the remote broker are reported before Spark is started.
    linked = remote.LinkedQueue(args, "out")
    say(f"Remote queue '{args.remote_queue}': {linked.before.messages:,} ready.")
    with spark_session("delta_to_queue", work.log, args.max_message_bytes) as spark:
        if flown:
            data = flights.load(args.limit)
            args.table, args.checkpoint = (
                str(work.folder / "table"),
                str(work.folder / "checkpoint"),
            )
            args.message_id_column = "message_id"
            say(f"Making a table of {len(data):,} flights ...")
            flights.table(spark, data).write.format("delta").save(args.table)
        elif not has_table(spark, args.table):
            raise JobError(
                f"There is no Delta table at {args.table}: --table names an existing one."
            )
        with linked.running():
            args.broker, args.queue = linked.broker, linked.name
            before = linked.admin.queue(linked.name)
            carried = before.ready + before.delayed + before.unacked
            streamed = stream(spark, args)
            linked.send_all()
            after = linked.admin.queue(linked.name)
            there = linked.count_there()
    published, sent = after.published - before.published, after.accepted - before.accepted
    counts = {
        "rows": streamed,
        "carried": carried,
        "published": published,
        "sent": sent,
        "there_before": linked.before.messages,
        "there_after": there.messages,
        "left": after.ready + after.delayed + after.unacked,
    }
    agree = sent == published + carried and published <= streamed and not counts["left"]
    if flown:
        agree = agree and published == len(data)
    if not (there.consumers or linked.before.consumers):
        # Messages that a cut doubled make the count too high, and so a mismatch. A remote broker
        # that does not report its consumers is assumed to have none.
        agree = agree and there.messages - linked.before.messages == sent
    return reconciliation.conclude(reconciliation.verdict(counts, agree=agree))


# --- the steps ---


def stream(spark: SparkSession, args: argparse.Namespace) -> int:
    """Publishes the table, until the trigger ends; returns the number of rows read."""
    rows = spark.readStream.format("delta").load(args.table)
    writer = messages(rows, args).writeStream.format("ackq").options(**sink_options(args))
    return queries.run(writer, args.checkpoint, args.trigger).rows


def write(spark: SparkSession, args: argparse.Namespace) -> int:
    """Publishes the current version of the table; returns its number of rows."""
    ((version,),) = history(spark, args.table).agg(F.max("version")).collect()
    rows = spark.read.format("delta").option("versionAsOf", version).load(args.table)
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
    """The options of the sink."""
    target = {"queue": args.queue} if args.queue else {"exchange": args.exchange}
    return {**args.broker.options(), **target, **dict(args.option)}


if __name__ == "__main__":
    sys.exit(main())
