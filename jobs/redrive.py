r"""Redrives dead letters to the queues that they came from, unchanged or repaired.

Invariant: a dead letter is in the dead-letter queue or in its old one, never in both or neither:
unchanged, the broker moves it in one record (Q6); repaired, it is a new message, written once under
its batch's id (K12), and the dead letter is accepted with the checkpoint. Messages that the repair
leaves out are released first and stay in the dead-letter queue (S6). A batch that was written
with another repair is refused (`kit.decisions`).

    python jobs/redrive.py
    python jobs/redrive.py --endpoint HOST:PORT --queue DEAD
    python jobs/redrive.py --endpoint HOST:PORT --queue DEAD --checkpoint PATH \
        --repair "CASE WHEN body LIKE '{%' THEN body || '}' END"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import enrich_queue
from ackq.client import Admin, Broker
from ackq.spark import settle
from ackq.spark.engine import SAYS_START
from kit import arguments, connection, flights, queries, reconciliation, say, workspace
from kit.decisions import Decisions
from kit.session import spark_session

QUEUE_HEADER: Final = "ackq-dead-queue"
DEAD_LETTER_HEADERS: Final = "ackq-dead-"
# Columns that a repaired message keeps.
KEPT: Final = ("message_id", "correlation_id", "reply_to", "content_type")


REPAIR_ONLY: Final = {"checkpoint", "trigger", "option"}
BOUNDS: Final = {"maxmessagespertrigger", "maxbytespertrigger"}


@dataclass
class RepairCounts:
    """Counts of the dead letters in the batches of this run: repaired, and left in their queue."""

    repaired: int = 0
    left: int = 0


def main() -> int:
    """Runs the job; returns the exit status."""
    args = parse()
    job = demonstrate
    if args.endpoint is not None:
        job = repair if args.repair else move
    return workspace.run(
        "redrive", lambda work: job(args, work), verbose=args.verbose, with_spark=job is not move
    )


def parse(line: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = arguments.parser(
        "Bring dead letters back to the queues they came from. Without --endpoint: "
        "start a broker, enrich flights of which some are broken, repair the rejected ones, enrich "
        "them again, and check that every flight is enriched."
    )
    add = parser.add_argument
    add("--queue", help="the dead-letter queue")
    add(
        "--max-messages",
        type=arguments.positive,
        help="the maximum number of messages; not with --repair",
    )
    add(
        "--cause",
        help="only dead letters of this cause: rejected, expired or delivery_limit; not with "
        "--repair",
    )
    add(
        "--repair",
        metavar="SQL",
        help="the new body, over the columns 'body' (as text), 'reason', 'routing_key', "
        "'message_id' and 'headers'; null leaves the message in its queue. Default: move the "
        "messages unchanged, without Spark",
    )
    add(
        "--to",
        metavar="QUEUE",
        help="the queue to move them to, instead of those that they came from",
    )
    add("--checkpoint", metavar="PATH", help="with --repair: the checkpoint folder")
    arguments.add_query(parser, "the ackq source, with --repair")
    args = parser.parse_args(line)
    if args.endpoint is None:
        arguments.check_demonstration(parser, args, "limit", "verbose")
        if args.limit and args.limit < enrich_queue.SPOIL_EVERY:
            parser.error(f"--limit is at least {enrich_queue.SPOIL_EVERY}")
    elif not args.queue or args.limit:
        parser.error("--endpoint needs --queue, and takes no --limit")
    elif args.repair and (not args.checkpoint or args.max_messages or args.cause):
        parser.error("--repair needs --checkpoint, and takes no --max-messages and no --cause")
    elif not args.repair and arguments.given(parser, args) & REPAIR_ONLY:
        parser.error("--checkpoint, --trigger and --option need --repair")
    elif not SAYS_START and "availableNow" in args.trigger:
        # Each run of one batch would read the messages again that an earlier one left.
        for name in (name for name, _ in args.option if name.lower() in BOUNDS):
            parser.error(f"before Spark 4.2 --repair takes no {name} with availableNow: use once")
    return args


# --- the three ways to run ---


def demonstrate(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Enriches flights, redrives the rejected ones repaired, and enriches those too."""
    data = flights.load(args.limit)
    with (
        spark_session("redrive", work.log, flights.MAX_MESSAGE_BYTES, delta=False) as spark,
        workspace.own_broker(work) as (args.broker, admin),
    ):
        sent = enrich_queue.publish(args.broker, admin, data)
        plan = enrich_queue.flights_plan(args.broker, [])
        checkpoint = str(work.folder / "enrich")
        enrich_queue.run(spark, plan, checkpoint, args.trigger)
        enrich_queue.show_reasons(spark, args.broker)
        say("Repairing the rejected flights and bringing them back ...")
        args.queue = enrich_queue.DEAD
        args.repair, args.checkpoint = flights.REPAIR, str(work.folder / "redrive")
        moved = run(spark, args)[1]
        say("Enriching the repaired flights ...")
        enrich_queue.run(spark, plan, checkpoint, args.trigger)
        enriched = queries.browse(spark, args.broker, enrich_queue.TARGET)
        found, duplicates = reconciliation.count_rows(enriched)
        queue, dead = admin.queue(flights.QUEUE), admin.queue(enrich_queue.DEAD)
    line, agree = reconciliation.reconcile(
        equal={
            "published": sent.published,
            "accepted": queue.accepted,
            "enriched": found,
        },
        zero={
            "dead": dead.ready + dead.unacked + dead.delayed,
            "ready": queue.ready,
            "unacked": queue.unacked,
            "duplicates": duplicates,
        },
    )
    agree &= moved.repaired == queue.dead_lettered == len(data) // enrich_queue.SPOIL_EVERY
    rejected = f"rejected={queue.dead_lettered} repaired={moved.repaired}"
    shown = f"{rejected} {line if agree else line.replace(' OK', ' MISMATCH')}"
    return reconciliation.conclude((shown, agree))


def move(args: argparse.Namespace, _work: workspace.Workspace) -> int:
    """Has the broker move dead letters as they are, in one record."""
    with Admin(connection.broker(args)) as admin:
        before = admin.queue(args.queue).ready
        answer = admin.redrive(
            args.queue,
            max_messages=args.max_messages or 0,
            cause=args.cause or "",
            to_queue=args.to or "",
        )
        after = admin.queue(args.queue).ready
    if answer.left and not args.max_messages:
        say(
            f"{answer.left:,} messages stay: their target queue was deleted or is full, or they are"
            " not dead letters."
        )
    # Others may use the queue meanwhile, so its counts are only shown.
    counts = {"before": before, "redriven": answer.messages, "left": answer.left, "after": after}
    return reconciliation.conclude(reconciliation.verdict(counts, agree=True))


def repair(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Writes repaired dead letters as new messages; reconciles the counts of this run."""
    args.broker = connection.broker(args)
    with (
        spark_session("redrive", work.log, delta=False) as spark,
        Admin(args.broker) as admin,
    ):
        if args.to:
            admin.queue(args.to)  # checks that it exists
        done, moved = run(spark, args)
        after = admin.queue(args.queue)
    agree = done.rows == moved.repaired + moved.left
    counts = {
        "read": done.rows,
        "replayed": done.replayed,
        "repaired": moved.repaired,
        "left": moved.left,
        "ready": after.ready + after.delayed,
        "unacked": after.unacked,
    }
    return reconciliation.conclude(reconciliation.verdict(counts, agree=agree))


# --- the steps ---


def run(spark: SparkSession, args: argparse.Namespace) -> tuple[queries.Streamed, RepairCounts]:
    """Repairs the messages of the dead-letter queue, until the trigger ends."""
    letters = queries.read_queue(spark, args.broker, args.queue, dict(args.option))
    done = RepairCounts()
    values = {"--repair": args.repair, "--to": args.to or ""}
    decided = Decisions(args.checkpoint, values, args.broker, "redrive")
    writer = repaired(letters, args).writeStream.foreachBatch(mover(args.broker, done, decided))
    return queries.run(writer, args.checkpoint, args.trigger), done


def mover(
    broker: Broker, done: RepairCounts, decided: Decisions
) -> Callable[[DataFrame, int], None]:
    """The function of each batch: releases messages that are left, writes repaired ones, counts."""

    def bring_back(rows: DataFrame, batch_id: int) -> None:
        once = decided.hold(rows, batch_id)
        rows.persist()
        try:
            left = rows.filter("body IS NULL OR queue IS NULL")
            settle(left, "released", **broker.options())
            whole = rows.filter("body IS NOT NULL AND queue IS NOT NULL").drop("delivery_tag")
            whole.write.format("ackq").mode("append").options(**broker.options(), **once).save()
            count = rows.agg(F.count("*"), F.count(F.when(F.expr("body || queue IS NOT NULL"), 1)))
            total, moved = count.first() or (0, 0)
            done.repaired += moved
            done.left += total - moved
        finally:
            rows.unpersist()

    return bring_back


def repaired(letters: DataFrame, args: argparse.Namespace) -> DataFrame:
    """Dead letters as the messages they become; `body` is null if one is left."""
    headers = F.col("headers")
    own: Column = F.map_filter(headers, lambda name, _: ~name.startswith(DEAD_LETTER_HEADERS))
    rows = letters.select(
        "delivery_tag",
        *KEPT,
        "routing_key",
        F.col("body").cast("string").alias("body"),
        headers[enrich_queue.REASON_HEADER].alias("reason"),
        (F.lit(args.to) if args.to else headers[QUEUE_HEADER]).alias("queue"),
        own.alias("headers"),
    )
    return rows.select("delivery_tag", *KEPT, "headers", "queue", F.expr(args.repair).alias("body"))


if __name__ == "__main__":
    sys.exit(main())
