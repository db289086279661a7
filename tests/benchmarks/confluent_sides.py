"""Kafka by confluent-kafka, a client in C, as the other side of a comparison.

Invariant: acks=all, no message waits for others; the broker syncs nothing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import harness
import kafka_server

PACKAGE = "confluent-kafka"


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The `host:port` of a broker; empty if its client is not installed."""
    if find_spec("confluent_kafka") is None:
        print(f"Kafka's figures are left out: {PACKAGE} is not installed.", flush=True)
        yield ""
        return
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-kafka-") as folder,
        kafka_server.KafkaServer(Path(folder)) as server,
    ):
        harness.NOTES[kafka_server.NAME] = (
            f"{kafka_server.VERSION} by {PACKAGE} {version(PACKAGE)}, one node, acks=all; answers"
            " from the page cache, syncs nothing"
        )
        yield server.endpoint


@contextlib.contextmanager
def waiting(endpoint: str, topic: str) -> Iterator[Callable[[bytes], object]]:
    """A producer that waits for the answer to each message; Kafka makes the topic at the first."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": endpoint, "acks": "all", "linger.ms": 0})

    def publish(body: bytes) -> None:
        errors: list[object] = []
        producer.produce(topic, body, on_delivery=lambda error, _: errors.append(error))
        producer.flush()
        assert errors == [None], errors

    yield publish
