"""The classic comparison: persistent publishes one by one, in transactions and with confirms.

Invariant: both sides publish the same messages to a durable queue, and what is counted was synced
within the time counted. RabbitMQ's own two figures stand beside, when it is installed; they have no
floor.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import harness
from harness import Comparison, Measurement

from ackq.client import Publisher, TransactionalPublisher

# The RabbitMQ node is that of tests/wire.
sys.path.append(str(Path(__file__).parents[2]))
from tests.wire.brokers import rabbitmq_server

HELP = "10,000 persistent publishes one by one: streamed with confirms against a commit for each"
MESSAGES = 10_000
TRANSACTIONS = 1_000
FLOOR = 100
# How many publishes pika buffers before it sends and receives.
_PER_TURN = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many of the publishes a repetition makes in transactions."""
    parser.set_defaults(sizes=[100])
    parser.add_argument(
        "--transactions",
        type=int,
        default=TRANSACTIONS,
        help=f"commits in a repetition; rates are compared, so they may be fewer than the"
        f" {MESSAGES:,} publishes with confirms ({TRANSACTIONS:,})",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """A comparison for each body size; after it RabbitMQ's, if it is installed."""
    if args.transactions < MESSAGES:
        print(
            f"The transactions of a repetition are {args.transactions:,} of the {MESSAGES:,}"
            f" publishes, and their rate is compared; --transactions {MESSAGES} runs them all.",
            flush=True,
        )
    for size in args.sizes:
        yield _compare(
            f"ackq, {size:,} B",
            FLOOR,
            args.repetitions,
            functools.partial(_ackq_transactions, endpoint, args.transactions, bytes(size)),
            functools.partial(_ackq_confirms, endpoint, bytes(size)),
        )
    with _rabbitmq() as port:
        for size in args.sizes if port else ():
            yield _compare(
                f"RabbitMQ, {size:,} B, beside it",
                None,
                args.repetitions,
                functools.partial(_rabbitmq_transactions, port, args.transactions, bytes(size)),
                functools.partial(_rabbitmq_confirms, port, bytes(size)),
            )


def _compare(
    title: str,
    floor: float | None,
    repetitions: int,
    anchor: Callable[[], Measurement],
    subject: Callable[[], Measurement],
) -> Comparison:
    comparison = Comparison(title, "commit for each", "streamed confirms", floor)
    return harness.interleave(comparison, repetitions, anchor, subject)


# --- ackq ---


def _ackq_transactions(endpoint: str, count: int, body: bytes) -> Measurement:
    """Publish and commit, one message at a time."""
    with (
        harness.queue(endpoint) as queue,
        TransactionalPublisher(endpoint, routing_key=queue) as publisher,
    ):
        publisher.publish(b"")
        publisher.commit()  # opens the stream
        started = time.perf_counter()
        for _ in range(count):
            publisher.publish(body)
            publisher.commit()
        return Measurement(count, {"wall": time.perf_counter() - started})


def _ackq_confirms(endpoint: str, body: bytes) -> Measurement:
    """Publish one by one, and collect every confirm."""
    with harness.queue(endpoint) as queue, Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        started = time.perf_counter()
        answers = [publisher.publish(body) for _ in range(MESSAGES)]
        publisher.flush()
        for answer in answers:
            answer.result()
        return Measurement(MESSAGES, {"wall": time.perf_counter() - started})


# --- RabbitMQ ---


@contextlib.contextmanager
def _rabbitmq() -> Iterator[int]:
    """The port of a node of the benchmark's own; 0 when RabbitMQ or its client is not installed."""
    missing = rabbitmq_server.missing() or ("" if find_spec("pika") else "pika")
    if missing:
        print(f"RabbitMQ's figures are left out: {missing} is not installed.", flush=True)
        yield 0
        return
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-rabbitmq-") as folder,
        rabbitmq_server.RabbitMqServer(Path(folder)) as server,
    ):
        product = _server_version(server.port)
        print(
            f"RabbitMQ {product} by pika {version('pika')}: a durable classic queue, persistent"
            " messages, synced as its defaults have it.",
            flush=True,
        )
        yield server.port


def _server_version(port: int) -> str:
    with _channel(port) as (connection, _, _):
        return str(connection._impl.server_properties["version"])


@contextlib.contextmanager
def _channel(port: int) -> Iterator[tuple[Any, Any, str]]:
    """A connection, a channel, and a durable queue that is gone afterwards."""
    import pika

    queue = f"benchmark-{uuid.uuid4().hex[:8]}"
    with contextlib.closing(
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    ) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        yield connection, channel, queue
        channel.queue_delete(queue)


def _persistent() -> Any:
    import pika

    return pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def _rabbitmq_transactions(port: int, count: int, body: bytes) -> Measurement:
    """Publish and tx.commit, one message at a time."""
    properties = _persistent()
    with _channel(port) as (_, channel, queue):
        channel.tx_select()
        started = time.perf_counter()
        for _ in range(count):
            channel.basic_publish("", queue, body, properties)
            channel.tx_commit()
        return Measurement(count, {"wall": time.perf_counter() - started})


def _rabbitmq_confirms(port: int, body: bytes) -> Measurement:
    """Publish one by one, and collect every confirm.

    pika's blocking channel waits for each confirm; the one below it does not.
    """
    from pika import spec

    properties = _persistent()
    with _channel(port) as (connection, channel, queue):
        unconfirmed = set(range(1, MESSAGES + 1))
        confirmed_below = 1

        def on_answer(frame: Any) -> None:
            nonlocal confirmed_below
            assert isinstance(frame.method, spec.Basic.Ack)
            tag = frame.method.delivery_tag
            if frame.method.multiple:
                unconfirmed.difference_update(range(confirmed_below, tag + 1))
                confirmed_below = tag + 1
            else:
                unconfirmed.discard(tag)

        streaming = channel._impl
        streaming.confirm_delivery(on_answer)
        connection.process_data_events(0.1)
        started = time.perf_counter()
        for number in range(MESSAGES):
            streaming.basic_publish("", queue, body, properties)
            if number % _PER_TURN == 0:
                connection.process_data_events(0)
        while unconfirmed:
            connection.process_data_events(0.01)
        return Measurement(MESSAGES, {"wall": time.perf_counter() - started})
