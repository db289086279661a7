"""A broker's start on what a killed one left, against reading the same files.

Invariant: the journal has a backlog of the size asked for, every message of it confirmed; after
each start all of them are there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import harness
from harness import Figures

import ackq_broker
from ackq.client import Admin, close_channels
from ackq_broker.embedding import EmbeddedBroker

HELP = "seconds until a killed broker with a journal of so many GiB serves again"
_READ_BYTES = 1 << 20
_GIB = 1 << 30
QUEUE = "backlog"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How much there is to recover."""
    parser.add_argument(
        "--gibibytes",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[1.0, 4.0],
        help="of message bodies, separated by commas (1,4)",
    )


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Figures]:  # noqa: ARG001
    """Figures per body size and journal, each with a broker of its own."""
    for size in args.sizes:
        for gibibytes in args.gibibytes:
            yield recovery(size, int(gibibytes * _GIB / size), args.repetitions)


def recovery(size: int, messages: int, repetitions: int) -> Figures:
    """Kills and starts a broker with so many messages."""
    figures = Figures(f"recovery, {messages:,} messages of {size:,} B", "s")
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        ackq_broker.embedded(data=Path(folder, "data")) as broker,
    ):
        with Admin(broker.endpoint) as admin:
            admin.declare_queue(QUEUE)
        harness.fill(broker.endpoint, QUEUE, rows=messages, size=size)
        for _ in range(repetitions):
            broker.kill()
            read_s = read(broker.data_dir)
            figures.add(
                {"start after SIGKILL": start(broker, messages), "reading its files": read_s}
            )
            figures.add({"start after a stop": stop_and_start(broker, messages)})
            print(figures.title, {name: values[-1] for name, values in figures.values.items()})
    return figures


def start(broker: EmbeddedBroker, messages: int) -> float:
    """Seconds from the start of the process until it has answered for its queue."""
    started = time.perf_counter()
    broker.restart()
    with Admin(broker.endpoint) as admin:
        assert admin.queue(QUEUE).ready == messages
    seconds = time.perf_counter() - started
    close_channels()
    return seconds


def stop_and_start(broker: EmbeddedBroker, messages: int) -> float:
    """The same after a clean stop, which is not counted."""
    broker.stop()
    return start(broker, messages)


def read(folder: Path) -> float:
    """Seconds to read all files of a folder, once they are in the page cache or not as before."""
    started = time.perf_counter()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass
    return time.perf_counter() - started
