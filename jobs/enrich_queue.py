"""Validates a queue's JSON: good rows go to a second queue, bad ones to the dead-letter queue.

Invariant: every message that was read is in exactly one of the two, once, however often the job is
stopped and started again with the same checkpoint: the bad rows of a batch are settled first, then
its good rows are written under the batch's id (K12), so a replay repeats both and changes nothing
(S6, K8). A batch that was written with other checks or fields is refused (`kit.decisions`).

    python jobs/enrich_queue.py
    python jobs/enrich_queue.py --endpoint HOST:PORT --queue Q --target T --checkpoint PATH ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from ackq.client import Admin, Broker
from ackq.spark import settle
from kit import (
    JobError,
    arguments,
    connection,
    flights,
    json_bodies,
    queries,
    reconciliation,
    say,
    workspace,
)
from kit.decisions import Decisions
from kit.session import spark_session

TARGET: Final = "enriched"
DEAD: Final = "flights.dead"
# In a demonstration, one in this many flights is broken on purpose.
SPOIL_EVERY: Final = 100
BATCH_MESSAGES: Final = 100_000
# The columns that the job needs; the broker sends no others.
MESSAGE_COLUMNS: Final = "body BINARY, message_id STRING, delivery_tag BIGINT"
REASON_HEADER: Final = "ackq-dead-reason"


@dataclass(frozen=True)
class Plan:
    """A plan of a run: the queue to read, checks and new fields of its messages, and the target.

    Attributes:
        broker: The broker of all queues.
        queue: The queue to read.
        target: The queue for good rows.
        schema: The fields of a body, as DDL.
        required: Fields that may not be missing.
        added: New fields by name, each an SQL expression over the others.
        options: Options of the source.
    """

    broker: Broker
    queue: str
    target: str
    schema: str
    required: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def decided(self, checkpoint: str) -> Decisions:
        """The arguments that decide in which queue a message ends, and with which body."""
        added = [f"{name}={expression}" for name, expression in self.added.items()]
        return Decisions(
            checkpoint,
            {
                "--target": self.target,
                "--json-schema": self.schema,
                "--require": sorted({*self.required}),
                "--add": added,
            },
            self.broker,
            "enrich",
        )


@dataclass
class SortCounts:
    """Counts of the rows in the batches of this run."""

    good: int = 0
    bad: int = 0


FLIGHTS: Final = {
    "schema": flights.JSON_SCHEMA,
    "required": ("carrier", "flight", "time_hour"),
    "added": {"route": "origin || '-' || dest", "late": "coalesce(dep_delay > 15, false)"},
}


def main() -> int:
    """Runs the job; returns the exit status."""
    args = parse()
    job = demonstrate if args.endpoint is None else drain
    return workspace.run("enrich-queue", lambda work: job(args, work), verbose=args.verbose)


def parse(line: list[str] | None = None) -> argparse.Namespace:
    """The command line, checked for options that do not go together."""
    parser = arguments.parser(
        "Parse and validate the JSON messages of a queue, add fields, and send them to "
        "a second queue, each once; reject messages that do not fit to the queue's dead-letter "
        "queue, with the reason. Without --endpoint: start a broker, publish the 336,776 flights "
        f"of 2013, one in {SPOIL_EVERY} of them broken, and check that each is in the right queue."
    )
    add = parser.add_argument
    add("--queue", help="the queue to read, which must have a dead-letter queue")
    add("--target", metavar="QUEUE", help="the queue for the enriched messages")
    add(
        "--checkpoint",
        metavar="PATH",
        help="the checkpoint folder, of these queues alone",
    )
    add(
        "--json-schema",
        metavar="DDL",
        help="the fields of a message, for example 'id BIGINT, name STRING'",
    )
    add(
        "--require",
        metavar="FIELD",
        action="append",
        default=[],
        help="a message without this field is bad; repeatable",
    )
    add(
        "--add",
        **arguments.pair("NAME=SQL", "a field to add, computed from the others; repeatable"),
    )
    arguments.add_query(parser, "the ackq source")
    args = parser.parse_args(line)
    if args.endpoint is None:
        arguments.check_demonstration(parser, args, "limit", "option", "verbose")
        if args.limit and args.limit < SPOIL_EVERY:
            parser.error(
                f"--limit is at least {SPOIL_EVERY}: one flight in {SPOIL_EVERY} is broken"
            )
    elif not (args.queue and args.target and args.checkpoint and args.json_schema):
        parser.error("--endpoint needs --queue, --target, --checkpoint and --json-schema")
    elif args.limit:
        parser.error("--limit is for the flights, which are published without --endpoint only")
    return args


# --- the two ways to run ---


def demonstrate(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Publishes flights, some of them broken, sorts them, and counts them in each queue."""
    data = flights.load(args.limit)
    with (
        spark_session("enrich_queue", work.log, flights.MAX_MESSAGE_BYTES, delta=False) as spark,
        workspace.own_broker(work) as (broker, admin),
    ):
        sent = publish(broker, admin, data)
        plan = flights_plan(broker, args.option)
        run(spark, plan, str(work.folder / "checkpoint"), args.trigger)
        show_reasons(spark, broker)
        found, duplicates = reconciliation.count_rows(queries.browse(spark, broker, TARGET))
        dead = queries.browse(spark, broker, DEAD)
        unexplained = dead.filter(F.coalesce(dead.headers[REASON_HEADER], F.lit("")) == "").count()
        queue, dead_queue = admin.queue(flights.QUEUE), admin.queue(DEAD)
    broken = len(data) // SPOIL_EVERY
    agree = (
        sent.published == sent.confirmed == queue.accepted + queue.dead_lettered
        and found == queue.accepted == len(data) - broken
        and dead_queue.ready == queue.dead_lettered == broken
        and not (queue.ready or queue.unacked or queue.delayed or duplicates or unexplained)
    )
    counts = {
        "published": sent.published,
        "confirmed": sent.confirmed,
        "accepted": queue.accepted,
        "rejected": queue.dead_lettered,
        "enriched": found,
        "dead": dead_queue.ready,
        "unacked": queue.unacked,
        "duplicates": duplicates,
        "unexplained": unexplained,
    }
    return reconciliation.conclude(reconciliation.verdict(counts, agree=agree))


def drain(args: argparse.Namespace, work: workspace.Workspace) -> int:
    """Sorts the queue of a running broker; an unconfirmed row fails the query, and so the job.

    Raises:
        JobError: The queue has no dead-letter queue.
    """
    plan = Plan(
        broker=connection.broker(args),
        queue=args.queue,
        target=args.target,
        schema=args.json_schema,
        required=tuple(args.require),
        added=dict(args.add),
        options=dict(args.option),
    )
    with (
        spark_session("enrich_queue", work.log, delta=False) as spark,
        Admin(plan.broker) as admin,
    ):
        before, target = admin.queue(args.queue), admin.queue(args.target)
        if not before.properties.dead_letter_queue:
            raise JobError(
                f"Queue '{args.queue}' has no dead-letter queue for the bad messages. Declare it"
                " with one: ackq queue declare --help."
            )
        done, sort = run(spark, plan, args.checkpoint, args.trigger)
        after, filled = admin.queue(args.queue), admin.queue(args.target)
    queries.say_unaccepted(after.unacked, args.trigger)
    # Others may use the queues meanwhile, so the broker's counts are only shown.
    agree = done.rows == sort.good + sort.bad
    counts = {
        "read": done.rows,
        "replayed": done.replayed,
        "good": sort.good,
        "bad": sort.bad,
        "written": filled.published - target.published,
        "rejected": after.dead_lettered - before.dead_lettered,
        "ready": after.ready,
        "unacked": after.unacked,
    }
    return reconciliation.conclude(reconciliation.verdict(counts, agree=agree))


# --- the steps ---


def publish(broker: Broker, admin: Admin, data: pd.DataFrame) -> flights.PublishCounts:
    """Declares the queues and publishes the flights, one in `SPOIL_EVERY` of them broken."""
    admin.declare_queue(DEAD)
    admin.declare_queue(TARGET)
    flights.declare(admin, data, dead_letter_queue=DEAD)
    say(f"Publishing {len(data):,} flights, one in {SPOIL_EVERY} of them broken ...")
    return flights.publish(broker, data, SPOIL_EVERY)


def flights_plan(broker: Broker, options: list[tuple[str, str]]) -> Plan:
    """The plan for the flights."""
    given = {"maxMessagesPerTrigger": str(BATCH_MESSAGES), **dict(options)}
    return Plan(broker=broker, queue=flights.QUEUE, target=TARGET, options=given, **FLIGHTS)


def run(
    spark: SparkSession, plan: Plan, checkpoint: str, trigger: dict[str, Any]
) -> tuple[queries.Streamed, SortCounts]:
    """Sorts the messages of the queue, until the trigger ends."""
    messages = queries.read_queue(
        spark, plan.broker, plan.queue, plan.options, columns=MESSAGE_COLUMNS
    )
    done = SortCounts()
    each = sorter(plan, done, plan.decided(checkpoint))
    writer = judged(messages, plan).writeStream.foreachBatch(each)
    return queries.run(writer, checkpoint, trigger), done


def sorter(plan: Plan, done: SortCounts, decided: Decisions) -> Callable[[DataFrame, int], None]:
    """The function of each batch: rejects bad messages, writes good ones, counts both."""

    def sort(rows: DataFrame, batch_id: int) -> None:
        once = decided.hold(rows, batch_id)
        rows.persist()
        try:
            good, bad = rows.filter("problem IS NULL"), rows.filter("problem IS NOT NULL")
            explained = bad.selectExpr("delivery_tag", "problem AS reason")
            settle(explained, "rejected", **plan.broker.options())
            enriched(good, plan).write.format("ackq").mode("append").options(
                **plan.broker.options(), queue=plan.target, **once
            ).save()
            count = rows.agg(F.count("*"), F.count("problem")).first()
            assert count is not None
            done.good += count[0] - count[1]
            done.bad += count[1]
        finally:
            rows.unpersist()

    return sort


def judged(messages: DataFrame, plan: Plan) -> DataFrame:
    """The messages with their parsed body `json`, and `problem`, which is null for a good one.

    A problem names no value: it is the reason of a rejection (`json_bodies.explainer`).
    """
    body = F.col("body")
    rows = messages.select(
        "*",
        json_bodies.flaw(body).alias("flaw"),
        json_bodies.parsed(body, plan.schema).alias("json"),
        F.from_json(body.cast("string"), "MAP<STRING, STRING>").alias("raw"),
    )
    unfit = [
        F.when(
            F.col("json")[name].isNull() & F.col("raw")[name].isNotNull(),
            F.lit(f"field '{name}' does not fit {kind}"),
        )
        for name, kind in fields(plan.schema).items()
    ]
    lacking = [
        F.when(F.col("raw")[name].isNull(), F.lit(f"field '{name}' is missing"))
        for name in plan.required
    ]
    wrong = F.concat_ws("; ", *unfit, *lacking)
    # Spark's parser has limits of its own, such as 1,000 digits.
    beyond = F.col("raw").isNull() | F.col("json")[json_bodies.UNFIT].isNotNull()
    problem = (
        F.when(F.col("flaw").isNotNull(), F.col("flaw"))
        .when(F.col("raw").isNotNull() & (wrong != ""), wrong)
        .when(beyond, F.lit("the body does not fit the fields"))
    )
    return rows.withColumn("problem", problem).drop("flaw", "raw")


def enriched(good: DataFrame, plan: Plan) -> DataFrame:
    """Good rows as messages: the fields of their body, and the added ones."""
    names = fields(plan.schema)
    own = json_bodies.column_beside([*names, *plan.added], "message_id")
    columns = (F.col("json")[name].alias(name) for name in names)
    rows = good.select(F.col("message_id").alias(own), *columns)
    for name, expression in plan.added.items():
        rows = rows.withColumn(name, F.expr(expression))
    whole = [f"`{name.replace('`', '``')}`" for name in rows.columns if name != own]
    body = F.to_json(F.struct(*whole))
    return rows.select(body.alias("body"), F.col(own).alias("message_id"))


def fields(ddl: str) -> dict[str, str]:
    """The names of fields and their types, of a schema in DDL."""
    return {each.name: each.dataType.simpleString() for each in StructType.fromDDL(ddl)}


def show_reasons(spark: SparkSession, broker: Broker) -> None:
    """Prints the reasons of the rejected messages, the most frequent first."""
    reason: Column = F.col("headers")[REASON_HEADER]
    found = (
        queries.browse(spark, broker, DEAD)
        .groupBy(reason.alias("reason"))
        .agg(F.count("*").alias("messages"))
        .orderBy(F.desc("messages"), "reason")
        .limit(5)
        .collect()
    )
    say("Why messages were rejected:")
    for row in found:
        say(f"  {row.messages:>7,}  {row.reason}")


if __name__ == "__main__":
    sys.exit(main())
