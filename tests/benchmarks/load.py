"""An open-loop load, and its consumer, each a process of its own: `load.py publish ...`.

Invariant: a message carries the time at which it was due to be published, by the machine's clock,
and every delay is counted from that time. A load that falls behind its schedule shows as delay.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from ackq.client import Channel, Message, Publisher

STAMP_BYTES = 8
_START_NS = 200_000_000
_BATCH_S = 0.01


def start(*arguments: object, program: str = __file__) -> subprocess.Popen[str]:
    """Starts a program, by default this one, as a process, which first prints `ready`."""
    child = subprocess.Popen(
        [sys.executable, program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def stamped(when_ns: int, size: int) -> bytes:
    """A body of a size that begins with a time."""
    return when_ns.to_bytes(STAMP_BYTES) + bytes(size - STAMP_BYTES)


def stamp(body: bytes) -> int:
    """The time that a body begins with."""
    return int.from_bytes(body[:STAMP_BYTES])


def schedule(rate: float, count: int) -> Iterator[int]:
    """Yields each due time of a schedule once it has come; at rate 0 the current time."""
    if not rate:
        for _ in range(count):
            yield time.time_ns()
        return
    first, step = time.time_ns() + _START_NS, 1e9 / rate
    for number in range(count):
        due = first + int(number * step)
        while (left := due - time.time_ns()) > 0:
            time.sleep(left / 1e9)  # to spin would take a core from the others
        yield due


def publish(
    endpoint: str, queue: str, file: str, rate: str, count: str, size: str, immediately: str
) -> None:
    """Publishes single messages; writes each one's due time, and its delay to the confirm."""
    dues, delays = np.zeros((2, int(count)), np.int64)
    with Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        print("ready", flush=True)
        for number, due in enumerate(schedule(float(rate), int(count))):
            dues[number] = due
            answer = publisher.publish(
                stamped(due, int(size)), ack_immediately=immediately == "immediately"
            )

            def confirmed(_: object, number: int = number, due: int = due) -> None:
                delays[number] = time.time_ns() - due

            answer.add_done_callback(confirmed)
        publisher.flush()
    np.save(file, [dues, delays])


def per_batch(rate: float) -> int:
    """The number of messages of a batch each 10 ms; a thousand if there is no rate."""
    return max(1, int(rate * _BATCH_S)) if rate else 1000


def publish_batches(endpoint: str, queue: str, file: str, rate: str, count: str, size: str) -> None:
    """Publishes a batch each 10 ms, at a rate of messages; at rate 0 as fast as it can."""
    rows = per_batch(float(rate))
    batches = int(count) // rows
    delays = np.zeros(batches, np.int64)
    with Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        print("ready", flush=True)
        for number, due in enumerate(schedule(float(rate) / rows, batches)):
            bodies = pa.array([stamped(due, int(size))] * rows, pa.binary())
            answer = publisher.publish_batch(pa.record_batch({"body": bodies}))

            def confirmed(_: object, number: int = number, due: int = due) -> None:
                delays[number] = time.time_ns() - due

            answer.add_done_callback(confirmed)
        publisher.flush()
    np.save(file, delays)


def consume(endpoint: str, queue: str, file: str, count: str) -> None:
    """Consumes by a callback in the default mode; writes due times and delays."""
    dues, delays = np.zeros((2, int(count)), np.int64)
    taken, done = 0, threading.Event()

    def on_message(message: Message) -> None:
        nonlocal taken
        body = message.body
        if not body:  # the message that opened the publisher
            return
        due = stamp(body)
        dues[taken], delays[taken] = due, time.time_ns() - due
        taken += 1
        if taken == len(delays):
            done.set()

    with Channel(endpoint) as channel:
        channel.consume(queue, on_message)
        print("ready", flush=True)
        done.wait()
    np.save(file, [dues, delays])


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    {"publish": publish, "publish-batches": publish_batches, "consume": consume}[sys.argv[1]](
        *sys.argv[2:]
    )
