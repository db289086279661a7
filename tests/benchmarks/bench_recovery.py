"""A broker's start on the data of a killed one, against reading the same files.

Invariant: the journal has a backlog of the requested size, with every message confirmed; after each
start all messages are ready or leased as before. Each start after a kill has the files of that
kill: the snapshot of a clean stop would make the next one shorter.
"""

import shutil
import tempfile
import time
from pathlib import Path

import harness
import psutil
from harness import Figures

import ackq_broker
from ackq.client import Admin, Publisher, Session, close_channels, holder
from ackq.v1 import sessions_pb2

HELP = "seconds until a killed broker with so many messages serves again, and what it takes"
_READ_BYTES = 1 << 20
_GIB = 1 << 30
_MIB = 1 << 20
QUEUE = "backlog"


OPTIONS = {
    "messages": ([], "numbers of messages, separated by commas, instead of 1 and 4 GiB"),
    "unacked": (0, "messages besides that a session has leased"),
    "singly": (False, "each message was published by itself, behind the confirm of the one before"),
}


def run(args, endpoint):  # noqa: ARG001
    """Figures per body size and journal, each with a broker of its own."""
    for size in args.sizes:
        for messages in args.messages or [each * _GIB // size for each in (1, 4)]:
            title = f"recovery, {messages:,} messages of {size:,} B"
            if args.unacked:
                title += f" and {args.unacked:,} unacked"
            if args.singly:
                title += ", published singly"
            filling = publish_singly if args.singly else harness.fill
            yield from recovery(title, filling, size, messages, args.unacked, args.reps)


def recovery(title, filling, size, ready, unacked, repetitions):
    """Starts brokers on copies of a killed one's data: the seconds, and the memory."""
    figures, memory = Figures(title, "s"), Figures(title, "MiB")
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        ackq_broker.embedded(data=Path(folder, "data")) as broker,
    ):
        with Admin(broker.endpoint) as admin:
            admin.declare_queue(QUEUE)
        filling(broker.endpoint, QUEUE, rows=ready + unacked, size=size)
        if unacked:
            lease(broker.endpoint, unacked)
        broker.kill()
        left = Path(folder, "left")
        broker.data_dir.rename(left)
        for _ in range(repetitions):
            shutil.copytree(left, broker.data_dir)
            read_s = read(broker.data_dir)
            figures.add({"start after SIGKILL": start(broker, ready, unacked)})
            process = psutil.Process(broker.pid)
            times = process.cpu_times()
            figures.add({"its CPU": times.user + times.system, "reading its files": read_s})
            memory.add({"after SIGKILL": process.memory_info().rss / _MIB})
            broker.stop()
            figures.add({"start after a stop": start(broker, ready, unacked)})
            print(figures.title, {name: values[-1] for name, values in figures.values.items()})
            broker.kill()
            shutil.rmtree(broker.data_dir)
    yield from (figures, memory)


def publish_singly(endpoint, queue, *, rows, size):
    """Publishes messages, each after the confirm of the previous one: a record for each."""
    body = bytes(size)
    with Publisher(endpoint, routing_key=queue) as publisher:
        for _ in range(rows):
            publisher.publish(body).result()


def lease(endpoint, messages):
    """Leases messages to a session, which keeps them when a process dies (S5)."""
    request = sessions_pb2.AdvanceRequest(
        holder=holder("benchmark"), queues=[QUEUE], max_messages=messages, open_and_lease=True
    )
    assert Session(endpoint).advance(request).end_tag == messages


def start(broker, ready, unacked):
    """Seconds from the start of the process until it has answered for its queue."""
    started = time.perf_counter()
    broker.restart()
    with Admin(broker.endpoint) as admin:
        info = admin.queue(QUEUE)
        assert (info.ready, info.unacked) == (ready, unacked)
    seconds = time.perf_counter() - started
    close_channels()
    return seconds


def read(folder):
    """Seconds to read all files of a folder, from the page cache or not, as they were before."""
    started = time.perf_counter()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass
    return time.perf_counter() - started
