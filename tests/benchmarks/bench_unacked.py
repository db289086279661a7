"""A channel's rates and the broker's memory, by how many messages are unacked (C16).

Invariant: both sides deliver and settle the same number of messages, over channels that differ in
nothing but their depth.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import harness
import psutil
from harness import Comparison, Measurement

from ackq import limits
from ackq.client import calls
from ackq.client.channels import channel
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame

HELP = "rates of a channel with 100,000 and 1,000,000 unacked as a ratio to those with 1,000"
SHALLOW = 1_000
DEPTHS = (100_000, 1_000_000)
SHAPES = ("contiguous", "every other")
MESSAGES = 20_000
BODY_BYTES = 100
RATE_FLOOR = 0.9
MEMORY_CEILING_BYTES = 16
WINDOW = 4_000_000

Response = frame.Frame[pb.ConsumeHeader]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This benchmark has no options of its own."""


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Deliver and accept rates for each depth and shape."""
    for shape in SHAPES:
        with Channel(endpoint, SHALLOW, shape) as shallow:
            for depth in DEPTHS:
                with Channel(endpoint, depth, shape) as deep:
                    print(
                        f"{depth:,} unacked, {shape}: {deep.unacked_bytes:.1f} bytes of broker "
                        f"memory each (ceiling {MEMORY_CEILING_BYTES})",
                        flush=True,
                    )
                    for what in ("deliver", "accept"):
                        yield harness.interleave(
                            Comparison(
                                f"{what}, {depth:,} unacked, {shape}",
                                f"{SHALLOW:,} unacked",
                                f"{depth:,} unacked",
                                RATE_FLOOR,
                            ),
                            args.repetitions,
                            functools.partial(shallow.measure, what),
                            functools.partial(deep.measure, what),
                        )


class Channel:
    """A consume stream that holds `depth` unacked messages; a context manager.

    Attributes:
        unacked_bytes: Broker memory that each unacked message took.
    """

    def __init__(self, endpoint: str, depth: int, shape: str) -> None:
        self._endpoint = endpoint
        self._depth = depth
        self._shape = shape
        self._resources = contextlib.ExitStack()
        self._requests: queue.SimpleQueue[pb.ConsumeRequest | None] = queue.SimpleQueue()
        self._last_tag = 0
        self._settlements = 0
        self.unacked_bytes = 0.0

    def __enter__(self) -> Self:
        self._queue = self._resources.enter_context(harness.queue(self._endpoint))
        every_other = self._shape == "every other"
        fetched = 2 * self._depth if every_other else self._depth
        harness.fill(self._endpoint, self._queue, rows=fetched, size=BODY_BYTES)
        opening = pb.ChannelOpen(channel_id=secrets.token_bytes(16), window_messages=WINDOW)
        self._ask(open=opening)
        answers = calls.consume(channel(self._endpoint, None), iter(self._requests.get, None))
        self._answers: Iterator[Response] = iter(answers)
        self._resources.callback(self._requests.put, None)
        ended = threading.Event()
        self._resources.callback(ended.set)
        threading.Thread(target=self._live, args=(ended,), daemon=True).start()
        before = _broker_memory_bytes()
        self._ask(subscribe=pb.Subscribe(consumer="c", queue=self._queue, prefetch=fetched))
        self._receive(fetched)
        if every_other:
            self._settle(range(2, fetched + 1, 2))
        self.unacked_bytes = (_broker_memory_bytes() - before) / self._depth
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def measure(self, what: str) -> Measurement:
        """Deliver so many more messages, then accept them; times one of the two."""
        harness.fill(self._endpoint, self._queue, rows=MESSAGES, size=BODY_BYTES)
        first = self._last_tag + 1
        seconds = {}
        started = time.perf_counter()
        self._ask(prefetch=pb.Prefetch(consumer="c", messages=self._depth + MESSAGES))
        self._receive(MESSAGES)
        seconds["deliver"] = time.perf_counter() - started
        self._ask(prefetch=pb.Prefetch(consumer="c", messages=self._depth))
        started = time.perf_counter()
        self._settle(range(first, self._last_tag + 1))
        seconds["accept"] = time.perf_counter() - started
        return Measurement(MESSAGES, {"wall": seconds[what]})

    def _live(self, ended: threading.Event) -> None:
        """Signs of life while another channel is measured."""
        while not ended.wait(limits.HEARTBEAT_SEND_MS / 1000):
            self._ask(heartbeat=pb.ChannelHeartbeat())

    def _ask(self, **kind: Any) -> None:
        self._requests.put(pb.ConsumeRequest(**kind))

    def _receive(self, messages: int) -> None:
        """Takes deliveries, with a transport ack for each frame."""
        while messages > 0:
            header = next(self._answers).header
            if header.WhichOneof("kind") == "delivery":
                runs = header.delivery.runs
                messages -= sum(runs.rows)
                self._last_tag = runs.first_tag[-1] + runs.rows[-1] - 1
                self._ask(transport_ack=pb.TransportAck(delivery_tag=self._last_tag))
        assert messages == 0

    def _settle(self, tags: range) -> None:
        """Accepts tags one by one and waits for the last answer."""
        for tag in tags:
            self._settlements += 1
            settle = pb.Settle(
                delivery_tag=tag, outcome=pb.OUTCOME_ACCEPTED, number=self._settlements
            )
            self._ask(settle=settle)
        while True:
            header = next(self._answers).header
            if header.settled.number == self._settlements:
                return


def _broker_memory_bytes() -> int:
    """Resident memory of the broker, a child of this process."""
    children = psutil.Process().children(recursive=True)
    (broker,) = (child for child in children if "ackq_broker" in " ".join(child.cmdline()))
    resident: int = broker.memory_info().rss
    return resident
