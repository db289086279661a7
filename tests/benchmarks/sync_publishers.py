"""Synchronous publishers, threads of a process of their own: `sync_publishers.py CLIENT ...`.

Invariant: each thread has a publisher (or connection) of its own, and publishes the next
message when the previous one is confirmed. The message that opens a publisher is not counted.
"""

import contextlib
import functools
import itertools
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import ackq_sides
import load
import rabbitmq_sides

from ackq.client import Admin

CLIENTS = {"ackq": ackq_sides.waiting, "RabbitMQ": rabbitmq_sides.waiting}
FILLING = 40


def opened(*given, threads=1, seconds=math.inf, count=sys.maxsize):
    """A process with open publishers, which publish for some seconds or some messages each.

    Given are client, address, queue, and bytes of a body. As a context manager the process ends
    with the block: until then its CPU can be read.
    """
    return load.start(*given, threads, seconds, count, program=__file__)


def run(*processes):
    """Lets all publish, and waits for them; returns the seconds in all, and of each message."""
    for process in processes:
        print(file=process.stdin, flush=True)
    found = [json.loads(process.stdout.readline()) for process in processes if process.stdout]
    return max(took for took, _ in found), [wait for _, waits in found for wait in waits]


def fill(endpoint, queue, *, rows, size):
    """Publishes messages one by one, by 40 publishers: each is a frame and a block of its own."""
    each = rows // FILLING
    with opened("ackq", endpoint, queue, size, threads=FILLING, count=each) as process:
        with Admin(endpoint) as admin:
            admin.purge_queue(queue)  # of the messages that opened the publishers
        _, waits = run(process)
    assert len(waits) == rows, f"published {len(waits)} of {rows}"


def main(client, address, queue, size, threads, seconds, count):
    """Opens the publishers; on a line of input they publish, and it prints what they measured."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(int(threads)) as pool:
        publishers = [
            stack.enter_context(CLIENTS[client](address, queue)) for _ in range(int(threads))
        ]
        for publish in publishers:
            publish(b"")
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        end = began + float(seconds)
        each = functools.partial(_publish, body=bytes(int(size)), end=end, count=int(count))
        waits = [wait for one in pool.map(each, publishers) for wait in one]
        print(json.dumps([time.perf_counter() - began, waits]), flush=True)
        sys.stdin.read()


def _publish(publish, *, body, end, count):
    """The seconds of each message, until a time or up to a number of messages."""
    times = [time.perf_counter()]
    while times[-1] < end and len(times) <= count:
        publish(body)
        times.append(time.perf_counter())
    return [done - started for started, done in itertools.pairwise(times)]


if __name__ == "__main__":
    main(*sys.argv[1:])
