"""A program over the public API that mypy and pyright check; it is not run.

A line with `type: ignore` is wrong: a checker that finds no error in it fails.
"""

from concurrent.futures import Future

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import ackq_broker
from ackq.client import (
    AcknowledgeMode,
    Admin,
    AsyncChannel,
    AsyncPublisher,
    Broker,
    Channel,
    Confirmation,
    DeathCause,
    ExchangeKind,
    Message,
    ModeName,
    Outcome,
    OutcomeName,
    OverflowName,
    Publisher,
    Security,
    Session,
    Settlement,
    TransactionalPublisher,
    wait_ready,
)
from ackq.errors import AckqError, BrokerUnavailableError
from ackq.spark import BatchLogger, configure, settle, txn_options

KIND: ExchangeKind = "topic"
OVERFLOW: OverflowName = "drop-head"
CAUSE: DeathCause = "expired"
MODE: ModeName = "client"
OUTCOMES: list[Outcome | OutcomeName] = ["rejected", Outcome.FAILED]


def words(admin: Admin, channel: Channel, rows: pa.RecordBatch) -> None:
    """Text arguments with few values."""
    admin.declare_exchange("e", KIND)
    admin.declare_exchange("e", "topics")  # type: ignore[arg-type]
    admin.declare_queue("q", overflow=OVERFLOW)
    admin.declare_queue("q", overflow="drop")  # type: ignore[arg-type]
    admin.redrive("q", cause=CAUSE)
    admin.redrive("q", cause="boredom")  # type: ignore[arg-type]
    admin.settle_session("s", "released", [(1, 2)])
    admin.settle_session("s", "accepted", [(1, 2)])  # type: ignore[arg-type]
    consumer = channel.consume("q", mode=MODE, outcomes=OUTCOMES)
    channel.consume("q", mode=AcknowledgeMode.AUTO, outcomes="failed")
    channel.consume("q", mode="clients", outcomes=["reject"])  # type: ignore[arg-type, list-item]
    consumer.settle(rows, "rejected")
    consumer.settle(rows, "reject")  # type: ignore[arg-type]


def publishes(publisher: Publisher, block: TransactionalPublisher, rows: pa.RecordBatch) -> None:
    """A queue is named as in all other calls."""
    confirmed: Future[Confirmation] = publisher.publish(b"a", queue="q")
    confirmed.result()
    publisher.publish_batch(rows, queue="q").result()
    block.publish("a", queue="q")
    block.publish_batch(rows, queue="q")


async def alike(publisher: AsyncPublisher, channel: AsyncChannel, rows: pa.RecordBatch) -> bytes:
    """The same calls under asyncio."""
    await publisher.publish(b"a", queue="q")
    publisher.publish_nowait(b"a", queue="q")
    await publisher.publish_batch(rows, queue="q")
    consumer = await channel.consume("q", mode="client", outcomes=["rejected"])
    await channel.consume("q", mode="clients")  # type: ignore[arg-type]
    return body(await consumer.receive())


def body(message: Message | None) -> bytes:
    """A body is bytes; a header may have no value."""
    if message is None:
        return b""
    headers: dict[str, str | None] = message.headers
    return message.body + (headers["a"] or "").encode()


def listed(admin: Admin) -> tuple[int, int, int, bool]:
    """The results of Admin have types, and the words of the dashboard."""
    queue, session = admin.queue("q"), admin.session("s")
    names: list[str] = [each.queue for each in admin.queues()]
    names += [each.link for each in admin.links()]
    names += [each.writer for each in admin.writers()]
    names += [each.exchange for each in admin.exchanges()]
    return queue.ready + queue.unacked, queue.delayed, session.leased, session.live


def settled(message: Message) -> Settlement:
    """An outcome has its own method, with the details that it takes."""
    message.accept().result(5.0)
    message.release(delay_ms=100)
    message.reject("no such customer")
    message.accept("why")  # type: ignore[call-arg]
    return message.fail("busy", delay_ms=1_000)


def connected() -> Broker:
    """A broker with its security is one value."""
    broker = Broker("broker:5775", Security(tls=True, ca="ca.pem", token_file="token"))
    wait_ready(broker, 10)
    Session(broker).horizon()
    Publisher(broker, routing_key=1)  # type: ignore[arg-type]
    with ackq_broker.embedded() as running, Publisher(running.endpoint) as publisher:
        publisher.publish("a", queue="q", ttl_ms=1_000, headers={"a": "b"})
        publisher.publish("a", ttl="1s")  # type: ignore[call-arg]
    return broker


def error(failed: AckqError) -> str:
    """Each error has a code and fields."""
    return failed.code if isinstance(failed, BrokerUnavailableError) else failed.fields["queue"]


def spark_program(builder: SparkSession.Builder, rows: DataFrame, batch_id: int) -> None:
    """The helpers of a Spark program."""
    session = configure(builder, max_message_bytes=1_024).getOrCreate()
    session.streams.addListener(BatchLogger())
    configure(builder, max_message_bytes="1k")  # type: ignore[arg-type]
    settle(rows)
    rows.write.format("ackq").options(**txn_options(rows, batch_id, "good")).save()
