"""What the benchmarks share: the comparison with an anchor, a broker to measure, the report.

Invariant: a ratio is only ever made of two measurements of the same repetition.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from ackq import limits
from ackq.client import Admin, Publisher

PACKAGES = ("pyspark", "pyarrow", "grpcio", "protobuf")


@dataclass(frozen=True)
class Measurement:
    """One run: rows, and the seconds they took by each clock that was read."""

    rows: int
    seconds: dict[str, float]

    def rate(self, clock: str) -> float:
        """Rows per second by one clock."""
        return self.rows / self.seconds[clock]


@dataclass
class Comparison:
    """A subject against its anchor, over repetitions.

    Attributes:
        title: What is compared, with its sizes.
        anchor: What the ratio divides by.
        subject: What is measured.
        floor: What the median ratio must reach by the first clock; None: it is shown alone.
        anchors: A measurement per repetition.
        subjects: Likewise.
    """

    title: str
    anchor: str
    subject: str
    floor: float | None
    anchors: list[Measurement] = field(default_factory=list)
    subjects: list[Measurement] = field(default_factory=list)

    @property
    def clocks(self) -> list[str]:
        """The names of the clocks."""
        return list(self.anchors[0].seconds)

    @property
    def passed(self) -> bool:
        """Whether the floor is reached."""
        ratio = statistics.median(self.ratios(self.clocks[0]))
        return self.floor is None or ratio >= self.floor

    def ratios(self, clock: str) -> list[float]:
        """Subject over anchor, per repetition."""
        pairs = zip(self.subjects, self.anchors, strict=True)
        return [subject.rate(clock) / anchor.rate(clock) for subject, anchor in pairs]

    def only(self, *clocks: str) -> Comparison:
        """The same by some of the clocks, whose first is judged."""

        def part(runs: list[Measurement]) -> list[Measurement]:
            return [
                Measurement(run.rows, {clock: run.seconds[clock] for clock in clocks})
                for run in runs
            ]

        return replace(
            self,
            title=f"{clocks[0]}, {self.title}",
            anchors=part(self.anchors),
            subjects=part(self.subjects),
        )

    def lines(self) -> Iterator[str]:
        """The result as a table of median [min..max]."""
        yield f"{self.title}: {len(self.anchors)} repetitions, median [min..max]"
        for clock in self.clocks:
            for name, runs in ((self.anchor, self.anchors), (self.subject, self.subjects)):
                rates = [run.rate(clock) for run in runs]
                yield f"  by {clock:<10} {name:<18} {spread(rates, ',.0f')} /s"
            yield f"  by {clock:<10} {'ratio':<18} {spread(self.ratios(clock), '.2f')}"
        if self.floor is not None:
            verdict = "OK" if self.passed else "BELOW THE FLOOR"
            yield f"  floor {self.floor:g} by {self.clocks[0]}: {verdict}"

    def raw(self) -> dict[str, Any]:
        """Everything measured, for JSON."""
        ratios = {clock: self.ratios(clock) for clock in self.clocks}
        return {**asdict(self), "ratios": ratios, "passed": self.passed}


def spread(values: list[float], form: str) -> str:
    """Median [min..max]."""
    return f"{statistics.median(values):{form}} [{min(values):{form}}..{max(values):{form}}]"


def interleave(
    comparison: Comparison,
    repetitions: int,
    anchor: Callable[[], Measurement],
    subject: Callable[[], Measurement],
) -> Comparison:
    """Measure both sides in turn, which first alternating, after a warm-up of each."""
    sides = [(comparison.anchors, anchor), (comparison.subjects, subject)]
    for _, run in sides:
        run()
    for repetition in range(repetitions):
        for results, run in sides if repetition % 2 == 0 else sides[::-1]:
            results.append(run())
        ratios = (f"{comparison.ratios(clock)[-1]:.2f} by {clock}" for clock in comparison.clocks)
        print(f"{comparison.title}: ratio {', '.join(ratios)}", flush=True)
    return comparison


# --- queues and messages ---


@contextlib.contextmanager
def queue(endpoint: str) -> Iterator[str]:
    """A durable queue that nothing has used, gone afterwards; its name."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    with Admin(endpoint) as admin:
        admin.declare_queue(name)
        yield name
        admin.delete_queue(name, force=True)


def rows_per_frame(size: int) -> int:
    """Messages of a body size in a frame of about the target size."""
    return max(1, min(limits.FRAME_TARGET_ROWS, limits.FRAME_TARGET_BYTES // size))


def bodies(rows: int, size: int) -> pa.RecordBatch:
    """Messages with bodies of one size and nothing else."""
    offsets = pa.array(range(0, (rows + 1) * size, size), pa.int32()).buffers()[1]
    data = pa.py_buffer(os.urandom(rows * size))
    body = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    return pa.RecordBatch.from_arrays([body], names=["body"])


def fill(endpoint: str, queue: str, *, rows: int, size: int) -> None:
    """Publish so many messages to a queue and wait for their confirms."""
    frame = bodies(rows_per_frame(size), size)
    with Publisher(endpoint, routing_key=queue) as publisher:
        answers = [
            publisher.publish_batch(frame.slice(0, min(frame.num_rows, rows - first)))
            for first in range(0, rows, frame.num_rows)
        ]
    confirmed = sum(answer.result() for answer in answers)
    assert confirmed == rows, f"confirmed {confirmed} of {rows}"


# --- the report ---


def machine() -> dict[str, str]:
    """What figures depend on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(models, platform.machine()),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }
