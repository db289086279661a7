"""Publishes batches of messages with progress lines, until all are confirmed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ackq.client import Broker, Publisher
from kit import say

REPORT_EVERY_S: Final = 1.0


@dataclass
class PublishCounts:
    """Messages published and confirmed so far, and the latency of the last confirm in seconds."""

    published: int = 0
    confirmed: int = 0
    confirm_s: float = 0.0


def publish(
    broker: Broker, batches: Iterable[pa.RecordBatch], exchange: str = "", routing_key: str = ""
) -> PublishCounts:
    """Publishes batches and waits for all confirms, with a line per second.

    Backpressure: a broker that is slower than the source of the batches slows the publishing down.

    Args:
        broker: The broker to publish to.
        batches: Batches with the columns that `Publisher.publish_batch` takes.
        exchange: The exchange of all messages.
        routing_key: The routing key of messages without one of their own.

    Raises:
        AckqError: A message was nacked (P8) or returned (P7).
    """
    counts, waiting = PublishCounts(), deque[tuple[Future[int], float]]()
    started = reported = time.monotonic()
    with Publisher(
        broker,
        exchange=exchange,
        routing_key=routing_key,
    ) as publisher:
        for batch in batches:
            waiting.append((publisher.publish_batch(batch), time.monotonic()))
            counts.published += batch.num_rows
            _count_confirms(counts, waiting)
            if time.monotonic() - reported >= REPORT_EVERY_S:
                reported = time.monotonic()
                say(
                    f"  published {counts.published:>11,}, confirmed {counts.confirmed:>11,}, the"
                    f" last within {counts.confirm_s * 1000:6.1f} ms"
                )
        publisher.flush()
    counts.confirmed += sum(answer.result() for answer, _ in waiting)
    seconds = time.monotonic() - started
    rate = counts.confirmed / seconds
    say(f"Confirmed {counts.confirmed:,} messages in {seconds:.1f} s ({rate:,.0f}/s).")
    return counts


def _count_confirms(counts: PublishCounts, waiting: deque[tuple[Future[int], float]]) -> None:
    """Counts confirms that have arrived, in the order of the batches."""
    while waiting and waiting[0][0].done():
        answer, sent = waiting.popleft()
        counts.confirmed += answer.result()
        counts.confirm_s = time.monotonic() - sent
