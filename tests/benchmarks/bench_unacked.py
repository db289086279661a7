"""A channel's rates and the broker's memory, by the number of unacked messages (C16).

Invariant: both sides deliver and settle the same number of messages, over channels that differ only
in their depth.
"""

import contextlib
import queue
import secrets
import threading
import time
from collections import deque

import cpu
import harness
import numpy as np
import psutil
from harness import Comparison, Measurement, Pair

from ackq import limits
from ackq.client.connection import calls
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.v1 import consuming_pb2 as pb

HELP = "rates of a channel with 100,000 and 1,000,000 unacked as a ratio to those with 1,000"
OPTIONS = {}
SHALLOW = 1_000
DEPTHS = (100_000, 1_000_000)
STRIDES = {"contiguous": 1, "every other one settled": 2}
# Cycles of a measurement: accept the oldest `MESSAGES`, one by one, and take as many new ones.
CYCLES = 20
MESSAGES = 500
BODY_BYTES = 100
RATE_FLOOR = 0.9
MEMORY_CEILING_BYTES = 16
# Memory is read at this many depths, `MEMORY_STEP` apart. The allocator's remains of sending vary
# by 20 MB meanwhile, so that only the slope over all of them is meaningful.
MEMORY_READINGS = 9
MEMORY_STEP = 500_000
WINDOW = 8_000_000
# Runs of tags in a settlement.
_MOST_RUNS = 4096
# A prefetch that the present unacked messages already fill.
_SHUT = 1


def run(args, endpoint):
    """Deliver and accept rates for each depth and shape, then the memory of each shape."""
    for shape, stride in STRIDES.items():
        with Channel(endpoint, SHALLOW, stride) as shallow:
            for depth in DEPTHS:
                with Channel(endpoint, depth, stride) as deep:
                    sides = {
                        f"{SHALLOW:,} unacked": shallow.measure,
                        f"{depth:,} unacked": deep.measure,
                    }
                    pair = Pair(*reversed(sides), RATE_FLOOR)
                    pairs = {f"{depth:,} unacked, {shape}": pair}
                    (both,) = harness.compare(sides, pairs, args.reps)
                    yield from (both.only("accept", "cpu"), both.only("deliver"))
    for shape, stride in STRIDES.items():
        yield memory(endpoint, shape, stride)


def memory(endpoint, shape, stride):
    """Broker memory per unacked message, as the number of times that it fits the ceiling."""
    depths = range(MEMORY_STEP, (MEMORY_READINGS + 1) * MEMORY_STEP, MEMORY_STEP)
    taken = []
    with Channel(endpoint, SHALLOW, stride) as it:
        for _ in depths:
            it.deepen(MEMORY_STEP)
            taken.append(_broker_memory_bytes())
            print(f"{shape}: {taken[-1] / 2**20:.0f} MiB of broker memory", flush=True)
    each, _ = np.polyfit(depths, taken, 1)
    return Comparison(
        f"unacked messages in a byte of broker memory, {shape}",
        f"{MEMORY_CEILING_BYTES} bytes each",
        f"{each:.1f} bytes each",
        1.0,
        [Measurement(depths[-1], {"memory": float(MEMORY_CEILING_BYTES * depths[-1])})],
        [Measurement(depths[-1], {"memory": max(1.0, float(each)) * depths[-1]})],
    )


class Channel:
    """A consume stream that holds `depth` unacked messages; a context manager.

    With a stride of 2, every other delivered message is settled at once, so that the unacked ones
    are no range of tags.
    """

    def __init__(self, endpoint, depth, stride):
        self._endpoint = endpoint
        self._depth = depth
        self._stride = stride
        self._resources = contextlib.ExitStack()
        self._requests = queue.SimpleQueue()
        self._unacked = deque()
        self._last_tag = 0
        self._settlements = 0
        self._answer = 0

    def __enter__(self):
        self._queue = self._resources.enter_context(harness.queue(self._endpoint))
        opening = pb.ChannelOpen(channel_id=secrets.token_bytes(16), window_messages=WINDOW)
        self._ask(open=opening)
        answers = calls.consume(grpc_channel(self._endpoint, None), iter(self._requests.get, None))
        self._answers = iter(answers)
        self._resources.callback(self._requests.put, None)
        ended = threading.Event()
        self._resources.callback(ended.set)
        threading.Thread(target=self._live, args=(ended,), daemon=True).start()
        self._ask(subscribe=pb.Subscribe(consumer="c", queue=self._queue, prefetch=_SHUT))
        self.deepen(self._depth)
        return self

    def __exit__(self, *_):
        self._resources.close()

    def deepen(self, messages):
        """Adds unacked messages."""
        self._publish(messages)
        self._deliver(messages)

    def measure(self):
        """Runs cycles at this depth: the seconds of either half, and the broker's CPU in both."""
        seconds = {"accept": 0.0, "deliver": 0.0}
        self._publish(CYCLES * MESSAGES)
        before = _broker_cpu_s()
        for _ in range(CYCLES):
            seconds["accept"] += self._accept([self._unacked.popleft() for _ in range(MESSAGES)])
            seconds["deliver"] += self._deliver(MESSAGES) / self._stride
        seconds["cpu"] = _broker_cpu_s() - before
        return Measurement(CYCLES * MESSAGES, seconds)

    def _publish(self, messages):
        """Publishes the messages for a number of unacked ones."""
        rows = messages * self._stride
        harness.fill(self._endpoint, self._queue, rows=rows, size=BODY_BYTES)

    def _deliver(self, messages):
        """Takes messages that stay unacked, and the settled ones between; returns the seconds."""
        first, last = self._last_tag + 1, self._last_tag + messages * self._stride
        room = len(self._unacked) + messages * self._stride
        started = time.perf_counter()
        self._ask(prefetch=pb.Prefetch(consumer="c", messages=room))
        while self._last_tag < last:
            header = next(self._answers).header
            if header.WhichOneof("kind") == "delivery":
                runs = header.delivery.runs
                self._last_tag = runs.first_tag[-1] + runs.rows[-1] - 1
                self._ask(transport_ack=pb.TransportAck(delivery_tag=self._last_tag))
        seconds = time.perf_counter() - started
        assert self._last_tag == last
        self._ask(prefetch=pb.Prefetch(consumer="c", messages=_SHUT))
        self._unacked.extend(range(first, last + 1, self._stride))
        self._settle_runs([tag for tag in range(first, last + 1) if (tag - first) % self._stride])
        return seconds

    def _accept(self, tags):
        """Accepts tags one by one; returns the seconds until the last is answered."""
        started = time.perf_counter()
        for tag in tags:
            self._settle(delivery_tag=tag)
        self._answered()
        return time.perf_counter() - started

    def _settle_runs(self, tags):
        """Accepts tags of which no two are consecutive."""
        for each in range(0, len(tags), _MOST_RUNS):
            part = tags[each : each + _MOST_RUNS]
            self._settle(first_tag=part, rows=[1] * len(part))
        self._answered()

    def _settle(self, **tags):
        self._settlements += 1
        settle = pb.Settle(outcome=pb.OUTCOME_ACCEPTED, number=self._settlements, **tags)
        self._ask(settle=settle)

    def _answered(self):
        """Waits for the answer to the last settlement."""
        while self._answer < self._settlements:
            self._answer = max(self._answer, next(self._answers).header.settled.number)

    def _ask(self, **kind):
        self._requests.put(pb.ConsumeRequest(**kind))

    def _live(self, ended):
        """Sends heartbeats while another channel is measured."""
        while not ended.wait(limits.HEARTBEAT_SEND_MS / 1000):
            self._ask(heartbeat=pb.ChannelHeartbeat())


def _broker():
    return psutil.Process(cpu.SERVERS[cpu.ACKQ])


def _broker_cpu_s():
    return sum(_broker().cpu_times()[:2])


def _broker_memory_bytes():
    """Memory of the broker, without the files that it has mapped."""
    memory = _broker().memory_info()
    return memory.rss - memory.shared
