"""Publishers offer more than the disk takes: memory stays bounded, and draining goes on.

A broker with a disk of limited bandwidth; publishers that offer much more, each message confirmed
or not; next to them a channel that takes and accepts one message at a time, an idle channel, and a
publisher of one message at a time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

import ackq_broker
from ackq.client import Admin, Channel, Publisher
from ackq.errors import AckqError
from tests.crash.overload import measured
from tests.fakes import machine

BODY = 1024
ROWS = 1000


def add_arguments(parser):
    """Options for the disk's speed, the offered load and the duration."""
    parser.add_argument("--disk", type=float, default=20, help="MB/s that the disk takes (20)")
    parser.add_argument("--offered", type=float, default=200, help="MB/s in all (200)")
    parser.add_argument("--publishers", type=int, default=4, help="each a process (4)")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--memory", type=float, default=1024, help="MiB that the broker may use")
    parser.add_argument("--flood", help=argparse.SUPPRESS)


def run(args):
    """Floods the broker; prints the figures and returns whether all checks held."""
    if args.flood:
        return flood(args)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        env = machine.with_slow_disk(folder, args.disk * 1e6)
        env["ACKQ_BROKER_MEMORY_LIMIT"] = str(int(args.memory * measured.MIB))
        broker = stack.enter_context(ackq_broker.embedded(Path(folder) / "data", env=env))
        with Admin(broker.endpoint) as admin:
            for queue in ("flood", "beside", "idle", "single"):
                admin.declare_queue(queue)
        with Publisher(broker.endpoint, routing_key="beside") as publisher:
            publisher.publish_batch(pa.record_batch({"body": pa.array([b"b"] * 10_000)}))
            publisher.flush(60)
        renewed = []
        idle = stack.enter_context(Channel(broker.endpoint, on_reconnect=renewed.append))
        idle.consume("idle", prefetch=1)
        accepts, confirms = _Beside(), _Beside()
        channel = stack.enter_context(Channel(broker.endpoint, on_reconnect=renewed.append))
        consumer = channel.consume("beside", mode="client", prefetch=10)
        accepts.run(lambda: consumer.receive(60).accept().result(300))
        single = stack.enter_context(Publisher(broker.endpoint, routing_key="single"))
        confirms.run(lambda: single.publish(b"s").result(300))
        time.sleep(2)
        before = accepts.take(), confirms.take()
        floods = [_flood(args, broker.endpoint) for _ in range(args.publishers)]
        began = time.monotonic()
        told = [json.loads(each.stdout.readline()) for each in floods]
        seconds = time.monotonic() - began
        during = accepts.take(), confirms.take()
        accepts.stop()
        confirms.stop()
        peak = measured.peak_bytes(broker.pid) / measured.MIB
        with Admin(broker.endpoint) as admin:
            stored = admin.queue("flood").ready
        for each in floods:
            each.stdin.close()
            each.wait(60)
        log = broker.log_file.read_text()
    confirmed = sum(each["confirmed"] for each in told)
    offered = sum(each["offered"] for each in told)
    failed = [error for each in told for error in each["failed"]]
    print(f"disk {args.disk:g} MB/s, offered {args.offered:g} MB/s for {seconds:.0f} s")
    rates = [f"{count * BODY / seconds / 1e6:.1f} MB/s" for count in (offered, confirmed)]
    print("taken from publishers {}, confirmed {}".format(*rates), end="; ")
    print(f"{offered} offered, {confirmed} confirmed, {stored} in the queue")
    print(f"broker: {peak:.0f} MiB at most of {args.memory:g}; channels renewed {len(renewed)}")
    for name, alone, beside in zip(("accepts", "confirms"), before, during, strict=True):
        print(f"{name} alone {_delays(alone)}; during the flood {_delays(beside)}")
    print(f"failed publishes: {len(failed)} {failed[:1]}; silent: {log.count('no sign of life')}")
    return (
        confirmed == stored == offered
        and not failed
        and not renewed
        and peak < args.memory
        and len(during[0]) > 0 < len(during[1])
    )


class _Beside:
    """Repeats a call in a thread and records the seconds that each took."""

    def __init__(self):
        self._taken = []
        self._stop = threading.Event()

    def run(self, call):
        def repeat():
            while not self._stop.is_set():
                began = time.perf_counter()
                call()
                self._taken.append(time.perf_counter() - began)

        self._thread = threading.Thread(target=repeat)
        self._thread.start()

    def take(self):
        """The durations recorded since the last call."""
        taken, self._taken = self._taken, []
        return taken

    def stop(self):
        self._stop.set()
        self._thread.join()


def _delays(taken):
    if len(taken) < 2:
        return f"{len(taken)}"
    cut = statistics.quantiles(taken, n=100)
    return (
        f"{len(taken)}, p50 {cut[49] * 1000:.0f} ms, p99 {cut[98] * 1000:.0f} ms,"
        f" most {max(taken) * 1000:.0f} ms"
    )


def _flood(args, endpoint):
    offered = args.offered / args.publishers
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.crash.overload", "disk", "--flood", endpoint),
            *("--offered", f"{offered}", "--seconds", f"{args.seconds}"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ},
    )


def flood(args):
    """Offers a rate of MB/s from one process; backpressure lowers the total and is not made up."""
    batch = pa.record_batch({"body": pa.array([os.urandom(BODY) for _ in range(ROWS)])})
    offered, failed = 0, []
    each_s = ROWS * BODY / (args.offered * 1e6)
    futures = []
    with Publisher(args.flood, routing_key="flood") as publisher:
        ends = due = time.monotonic()
        ends += args.seconds
        while (now := time.monotonic()) < ends:
            if now < due:
                time.sleep(due - now)
            due = max(due + each_s, now)
            futures.append(publisher.publish_batch(batch))
            offered += ROWS
        confirmed = 0
        for future in futures:
            try:
                future.result(300)
                confirmed += ROWS
            except AckqError as error:
                failed.append(repr(error))
        told = {"offered": offered, "confirmed": confirmed, "failed": failed}
        print(json.dumps(told), flush=True)
    sys.stdin.readline()
    return True
