"""A tour: ten questions of new users, each answered by doing it.

Invariant: each printed result was observed; an answer that is not as promised fails the tour.

    python jobs/tour.py
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import ackq_broker
from ackq.client import Admin, Channel, Publisher, TransactionalPublisher
from ackq.spark import settle
from ackq.spark.engine import SAYS_START
from ackq_broker.embedding import EmbeddedBroker
from kit import JobError, say, workspace
from kit.session import spark_session

JSON_ID: Final = "get_json_object(cast(body AS STRING), '$.id')"


@dataclass
class Tour:
    """State that the steps share: a Spark session, a broker, a folder, and the step's number."""

    spark: SparkSession
    broker: EmbeddedBroker
    admin: Admin
    folder: Path
    steps: int = field(default=0)

    def ask(self, question: str) -> None:
        """Prints the next question."""
        self.steps += 1
        say(f"\n{self.steps}. {question}")

    def stream(self, queue: str) -> DataFrame:
        """A queue as a stream."""
        options = {"endpoint": self.broker.endpoint, "queue": queue}
        return self.spark.readStream.format("ackq").options(**options).load()

    def run(self, name: str, rows: DataFrame, write: Callable[[DataFrame, int], None]) -> None:
        """Runs a query over the messages that are available, until its batches are done."""
        writer = rows.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()


def main() -> int:
    """Runs the tour; returns the exit status."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--verbose", action="store_true", help="show Spark's log on the screen")
    # The client's log lines are part of the answers.
    logging.basicConfig(stream=sys.stdout, format="   log: %(message)s")
    return workspace.run("tour", tour, verbose=made.parse_args().verbose)


def tour(work: workspace.Workspace) -> int:
    """Runs all steps in order, as some continue where another ended.

    Raises:
        JobError: An answer is not what was promised, or Spark is older than 4.2.
    """
    if not SAYS_START:
        raise JobError("The tour needs Spark 4.2 or newer: pip install 'pyspark>=4.2,<4.4'.")
    with (
        spark_session("tour", work.log, delta=False) as spark,
        ackq_broker.embedded(data=work.folder / "broker") as broker,
        Admin(broker.endpoint) as admin,
    ):
        here = Tour(spark, broker, admin, work.folder)
        for step in STEPS:
            step(here)
        say(f"\n{here.steps} of {len(STEPS)} answers were as promised. OK")
    return 0


def seen(what: str, found: Any, promised: Any) -> None:
    """Prints a result; raises JobError if it is not the promised one."""
    if found != promised:
        raise JobError(f"{what}: {found}; promised was {promised}")
    say(f"   {what}: {found}")


# --- the questions ---


def confirm(here: Tour) -> None:
    """P4: a confirm follows the sync."""
    here.ask("When is a message safe? Once it is confirmed, whatever process is killed then.")
    here.admin.declare_queue("orders")
    with Publisher(here.broker.endpoint, routing_key="orders") as publisher:
        for number in range(100):
            publisher.publish(json.dumps({"id": number}), message_id=str(number))
    here.broker.kill()
    here.broker.restart()
    seen("messages after kill -9 of the broker", here.admin.queue("orders").ready, 100)


def browse(here: Tour) -> None:
    """Q5: a browse changes nothing."""
    here.ask("Can I look without taking? Yes, with spark.read: a browse.")
    options = {"endpoint": here.broker.endpoint, "queue": "orders"}
    rows = here.spark.read.format("ackq").options(**options).load()
    seen("ids below 3", sorted(each[0] for each in rows.selectExpr(JSON_ID).head(3)), list("012"))
    seen("messages still ready", here.admin.queue("orders").ready, 100)


def replay(here: Tour) -> None:
    """K1, K2: a batch that is run again reads the same rows; acks follow the checkpoint."""
    here.ask("What if my query dies in the middle of a batch? It reads the same rows again.")
    read: list[list[int]] = []

    def fail_once(rows: DataFrame, _: int) -> None:
        tags = sorted(row.delivery_tag for row in rows.select("delivery_tag").collect())
        if tags:  # the first batch of a query is empty: it makes its session
            read.append(tags)
        if len(read) == 1:
            raise RuntimeError("the program's own error")

    rows = here.stream("orders")
    try:
        here.run("replay", rows, fail_once)
    except StreamingQueryException:
        say("   the query has failed")
    seen("messages unacked in the meantime, and none lost", here.admin.queue("orders").unacked, 100)
    here.run("replay", rows, fail_once)
    seen(
        "runs of the batch, with the same delivery tags",
        (len(read), read[0] == read[-1]),
        (2, True),
    )
    seen("messages accepted, once the checkpoint had them", accepted(here, "orders"), 100)


def once(here: Tour) -> None:
    """K3: a batch that Spark writes again becomes visible once."""
    here.ask("Is the sink exactly-once? Yes: a batch that is written again is not doubled.")
    here.admin.declare_queue("invoices")
    publish(here, "orders", [{"id": number} for number in range(50)])
    checkpoint = here.folder / "once"

    def start() -> None:
        options = {"endpoint": here.broker.endpoint, "queue": "invoices"}
        writer = here.stream("orders").select("body").writeStream.format("ackq").options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    start()
    last = max(
        int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal()
    )
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    say("   Spark's note that the batch is done was deleted: it runs the batch again")
    start()
    seen("messages in the other queue", here.admin.queue("invoices").ready, 50)


def sort(here: Tour) -> None:
    """K8, S6: `settle` decides for each message; a rejected one becomes a dead letter."""
    here.ask("What if a message is not JSON? Reject it: it becomes a dead letter, with the reason.")
    here.admin.declare_queue("broken")
    here.admin.declare_queue("parcels", dead_letter_queue="broken")
    publish(here, "parcels", [{"id": 1}, "no JSON", {"id": 2}])
    good: list[str] = []

    def route(rows: DataFrame, _: int) -> None:
        settle(rows.filter(f"{JSON_ID} IS NULL"), "rejected", reason="no id", **endpoint(here))
        good.extend(row[0] for row in rows.selectExpr(JSON_ID).collect() if row[0])

    here.run("sort", here.stream("parcels"), route)
    seen("good ones", sorted(good), ["1", "2"])
    letters = here.spark.read.format("ackq").options(**endpoint(here), queue="broken").load()
    row = letters.selectExpr("headers['ackq-dead-reason']", "headers['ackq-dead-queue']").head()
    seen("the dead letter's reason and queue", tuple(row or ()), ("no id", "parcels"))


def redrive(here: Tour) -> None:
    """Q6: a redrive moves dead letters back to the queue they came from."""
    here.ask("How do I bring dead letters back? With a redrive, when the cause is fixed.")
    seen("messages that went back", here.admin.redrive("broken").messages, 1)
    seen("ready in their queue", here.admin.queue("parcels").ready, 1)


def retry(here: Tour) -> None:
    """C13: a failure counts; one more than the limit makes the message a dead letter."""
    here.ask("What if a message always fails? Past its queue's limit it is a dead letter.")
    here.admin.declare_queue("poison", delivery_limit=2, dead_letter_queue="broken")
    publish(here, "poison", ["x"])
    with Channel(here.broker.endpoint) as channel:
        consumer = channel.consume("poison", mode="client", outcomes=["failed"])
        for delivery in (1, 2, 3):
            message = consumer.receive(timeout_s=10)
            message.fail("cannot be processed").result()
            say(f"   delivery {delivery} failed")
    seen("ready", here.admin.queue("poison").ready, 0)
    seen("dead letters", here.admin.queue("broken").ready, 1)


def topics(here: Tour) -> None:
    """Q2, P7: an exchange routes by binding keys; a message no queue wants is an error."""
    here.ask("One message to several queues? Bind them to an exchange, by words of routing keys.")
    here.admin.declare_exchange("events", "topic")
    for queue, key in (("europe", "eu.#"), ("paid", "*.order.paid")):
        here.admin.declare_queue(queue)
        here.admin.bind("events", queue, key)
    with Publisher(here.broker.endpoint, exchange="events") as publisher:
        publisher.publish(b"1", routing_key="eu.order.paid")
        publisher.publish(b"2", routing_key="us.order.paid")
    seen("in 'europe'", here.admin.queue("europe").ready, 1)
    seen("in 'paid'", here.admin.queue("paid").ready, 2)


def transaction(here: Tour) -> None:
    """P13: all messages of a transaction, or none."""
    here.ask("Several messages, all or none? A transaction.")
    with TransactionalPublisher(here.broker.endpoint, routing_key="invoices") as publisher:
        publisher.publish(b"debit")
        publisher.rollback()
        seen("after a rollback", here.admin.queue("invoices").ready, 50)
        publisher.publish(b"debit")
        publisher.publish(b"credit")
        publisher.commit()
    seen("after a commit of two", here.admin.queue("invoices").ready, 52)


def restart(here: Tour) -> None:
    """C17: a consumer goes on after a restart; an accepted message is never delivered again."""
    here.ask("What happens to my consumer when the broker restarts? It reconnects by itself.")
    with Channel(here.broker.endpoint) as channel:
        consumer = channel.consume("paid", mode="client")
        first, second = consumer.receive(timeout_s=10), consumer.receive(timeout_s=10)
        first.accept().result()
        here.broker.kill()
        here.broker.restart()
        again = consumer.receive(timeout_s=30)
        seen(
            "the message that was not accepted is delivered again", again.body == second.body, True
        )
        again.accept().result()
    seen("left", here.admin.queue("paid").ready + here.admin.queue("paid").unacked, 0)


STEPS: Final = (
    confirm,
    browse,
    replay,
    once,
    sort,
    redrive,
    retry,
    topics,
    transaction,
    restart,
)


# --- helpers of the steps ---


def endpoint(here: Tour) -> dict[str, str]:
    """The option that names the broker."""
    return {"endpoint": here.broker.endpoint}


def publish(here: Tour, queue: str, bodies: list[Any]) -> None:
    """Publishes bodies, and waits for their confirms; a body that is no text becomes JSON."""
    with Publisher(here.broker.endpoint, routing_key=queue) as publisher:
        for body in bodies:
            publisher.publish(body if isinstance(body, str) else json.dumps(body))


def accepted(here: Tour, queue: str) -> int:
    """Number of messages of a queue that were accepted since the broker was created."""
    return int(here.admin.queue(queue).accepted)


if __name__ == "__main__":
    sys.exit(main())
