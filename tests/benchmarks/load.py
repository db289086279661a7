"""An open-loop load, and its consumer, each a process of its own: `load.py publish ...`.

Invariant: a message carries the time at which it was due to be published, by the machine's clock,
and every delay is counted from that time. A load that falls behind its schedule shows as delay.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from ackq.client import Channel, Publisher

STAMP_BYTES = 8
_START_NS = 200_000_000
_BATCH_S = 0.01


def start(*arguments, program=__file__):
    """Starts a program, by default this one, as a process, which first prints `ready`."""
    child = subprocess.Popen(
        [sys.executable, program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout.readline() == "ready\n"
    return child


def stamped(when_ns, size):
    """A body of a size that begins with a time."""
    return when_ns.to_bytes(STAMP_BYTES) + bytes(size - STAMP_BYTES)


def stamp(body):
    """The time that a body begins with."""
    return int.from_bytes(body[:STAMP_BYTES])


def schedule(rate, count):
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


def publish(endpoint, queue, file, rate, count, size, how):
    """Publishes messages; writes due times, and delays to the confirms.

    One by one, with `immediately` for a confirm at once; or with `batches` a batch each 10 ms.
    """
    rows = per_batch(float(rate)) if how == "batches" else 1
    calls = int(count) // rows
    dues, delays = np.zeros((2, calls), np.int64)
    with Publisher(endpoint, routing_key=queue) as publisher:
        publisher.publish(b"", ack_immediately=True).result()  # opens the stream
        print("ready", flush=True)
        for number, due in enumerate(schedule(float(rate) / rows, calls)):
            dues[number], body = due, stamped(due, int(size))
            if how == "batches":
                bodies = pa.array([body] * rows, pa.binary())
                answer = publisher.publish_batch(pa.record_batch({"body": bodies}))
            else:
                answer = publisher.publish(body, ack_immediately=how == "immediately")

            def confirmed(_, number=number, due=due):
                delays[number] = time.time_ns() - due

            answer.add_done_callback(confirmed)
        publisher.flush()
    np.save(file, [dues, delays])


def per_batch(rate):
    """The number of messages of a batch each 10 ms; a thousand if there is no rate."""
    return max(1, int(rate * _BATCH_S)) if rate else 1000


def consume(endpoint, queue, file, count):
    """Consumes by a callback in the default mode; writes due times and delays."""
    dues, delays = np.zeros((2, int(count)), np.int64)
    taken, done = 0, threading.Event()

    def on_message(message):
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
    {"publish": publish, "consume": consume}[sys.argv[1]](*sys.argv[2:])
