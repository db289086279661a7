"""The common parts of benchmarks: comparisons with an anchor, a broker, the machine.

Invariant: a ratio is only ever made of two measurements of the same repetition.
"""

import contextlib
import math
import os
import platform
import statistics
import threading
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import cpu
import psutil
import pyarrow as pa

from ackq import limits
from ackq.client import Admin, Publisher

PACKAGES = ("pyspark", "pyarrow", "grpcio", "protobuf")
# Notes of a run on the other products that it measured: their versions, and when they sync.
NOTES = {}
SCRAPE_S = 5.0


@dataclass(frozen=True)
class Measurement:
    """One run: rows, the seconds they took by each clock that was read, and the CPU they took.

    Attributes:
        rows: Number of rows.
        seconds: Seconds by clock.
        cpu_us: Microseconds of CPU for each row, by part (`cpu.PARTS`); empty: not read.
    """

    rows: int
    seconds: dict[str, float]
    cpu_us: dict[str, float] = field(default_factory=dict)

    def rate(self, clock):
        """Rows per second by one clock."""
        return self.rows / self.seconds[clock]


@dataclass
class Comparison:
    """A subject against its anchor, over repetitions.

    Attributes:
        title: The compared subject, with its sizes.
        anchor: The side that the ratio divides by.
        subject: The measured side.
        floor: The least median ratio by the first clock; None: no bound.
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
    def clocks(self):
        """The names of the clocks."""
        return list(self.anchors[0].seconds)

    @property
    def passed(self):
        """Whether the floor is reached."""
        ratio = statistics.median(self.ratios(self.clocks[0]))
        return self.floor is None or ratio >= self.floor

    def ratios(self, clock):
        """Rate of the subject divided by that of the anchor, per repetition."""
        pairs = zip(self.subjects, self.anchors, strict=True)
        return [subject.rate(clock) / anchor.rate(clock) for subject, anchor in pairs]

    def only(self, *clocks):
        """The comparison by some of its clocks, of which the first is judged."""

        def part(runs):
            return [
                replace(run, seconds={clock: run.seconds[clock] for clock in clocks})
                for run in runs
            ]

        return replace(
            self,
            title=f"{clocks[0]}, {self.title}",
            anchors=part(self.anchors),
            subjects=part(self.subjects),
        )

    def lines(self):
        """The result as a table of median [min..max]."""
        yield f"{self.title}: {len(self.anchors)} repetitions, median [min..max]"
        for clock in self.clocks:
            for name, runs in ((self.anchor, self.anchors), (self.subject, self.subjects)):
                rates = [run.rate(clock) for run in runs]
                yield f"  by {clock:<10} {name:<18} {numbers(rates)} /s"
            yield f"  by {clock:<10} {'ratio':<18} {spread(self.ratios(clock), '.2f')}"
        yield from cpu_lines({self.anchor: self.anchors, self.subject: self.subjects})
        if self.floor is not None:
            verdict = "OK" if self.passed else "BELOW THE FLOOR"
            yield f"  floor {self.floor:g} by {self.clocks[0]}: {verdict}"

    def raw(self):
        """All measurements, for JSON."""
        ratios = {clock: self.ratios(clock) for clock in self.clocks}
        return {**asdict(self), "ratios": ratios, "passed": self.passed}


def spread(values, form):
    """Median [min..max]."""
    return f"{statistics.median(values):{form}} [{min(values):{form}}..{max(values):{form}}]"


def numbers(values):
    """Median [min..max], each with its significant digits."""
    low, median, high = (
        number(each) for each in (min(values), statistics.median(values), max(values))
    )
    return f"{median} [{low}..{high}]"


def number(value):
    """A number with three or four significant digits: 1,152,000, 23.4, 0.861."""
    if value >= 1000:
        digits = max(0, math.floor(math.log10(value)) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def cpu_lines(sides):
    """The median CPU of each side that was read, without parts that took none.

    Cores is the number of them that the parts kept busy, by the first clock: near the machine's
    number, only less CPU per row makes it faster.
    """
    for name, runs in sides.items():
        medians = {
            part: statistics.median(run.cpu_us[part] for run in runs)
            for part in runs[0].cpu_us
            if all(part in run.cpu_us for run in runs)
        }
        if medians:
            parts = (f"{part} {value:.2f}" for part, value in medians.items() if value >= 0.005)
            busy = statistics.median(_cores(run) for run in runs)
            cores = f"{busy:.2f} of {os.cpu_count()} cores"
            yield f"  CPU us/row   {name:<18} {', '.join(parts)}: {cores}"


def _cores(run):
    """The number of cores that a measurement kept busy."""
    return sum(run.cpu_us.values()) * run.rate(next(iter(run.seconds))) / 1e6


@dataclass
class Figures:
    """Values that are no rates, of one or more runs: percentiles, seconds of a single task.

    Attributes:
        title: The measured subject, with its sizes.
        unit: The unit of the values.
        values: By name, a value per repetition.
    """

    title: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)
    passed: bool = True

    def add(self, values):
        """Adds the values of a repetition."""
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def without_warm_up(self):
        """The figures without the first repetition."""
        return replace(self, values={name: values[1:] for name, values in self.values.items()})

    def lines(self):
        """The result as a table of median [min..max]."""
        count = max(map(len, self.values.values()), default=0)
        yield f"{self.title}, {self.unit}: {count} repetitions, median [min..max]"
        for name, values in self.values.items():
            yield f"  {name:<40} {numbers(values)}"

    def raw(self):
        """All measurements, for JSON."""
        return asdict(self)


Result = Comparison | Figures


def rotate(sides, repetitions):
    """Measures all sides in turn, in reversed order each time, after a warm-up of each."""
    for run in sides.values():
        run()
    for repetition in range(repetitions):
        order = list(sides) if repetition % 2 == 0 else list(sides)[::-1]
        yield {side: sides[side]() for side in order}


@dataclass(frozen=True)
class Pair:
    """Two sides to compare, and the floor of their ratio."""

    subject: str
    anchor: str
    floor: float | None = None


def compare(sides, pairs, repetitions):
    """Measures many sides in turn, and compares pairs of them, by title."""
    runs = {side: [] for side in sides}
    for number, results in enumerate(rotate(sides, repetitions), 1):
        for side, measured in results.items():
            runs[side].append(measured)
        print(f"{', '.join(pairs)}: {number} of {repetitions}", flush=True)
    return [
        Comparison(
            title, pair.anchor, pair.subject, pair.floor, runs[pair.anchor], runs[pair.subject]
        )
        for title, pair in pairs.items()
    ]


def against(subject, anchors, title):
    """The pairs of a subject with each of its anchors, by titles that name them."""
    return {f"{title}: {subject} / {anchor}": Pair(subject, anchor) for anchor in anchors}


def percentiles(seconds, name):
    """Milliseconds by name and percentile."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return {f"{name} p{at / 10:g}": cuts[at - 1] * 1000 for at in (500, 990, 999)}


@contextlib.contextmanager
def scraped(request, trusted=None):
    """Reads metrics during the block as Prometheus does, but more often."""
    over = threading.Event()

    def scrape():
        while True:
            with urllib.request.urlopen(request, context=trusted) as answer:  # noqa: S310 - our broker
                answer.read()
            if over.wait(SCRAPE_S):
                return

    with ThreadPoolExecutor(1) as pool:
        scraping = pool.submit(scrape)
        try:
            yield
        finally:
            over.set()
    # A scraper that failed would have made the broker look better than it is.
    scraping.result()


@contextlib.contextmanager
def clocked(rows, server=cpu.ACKQ):
    """Times the block by the wall and by CPU; afterwards the list has the measurement."""
    found = []
    before = cpu.seconds(server)
    started = time.perf_counter()
    yield found
    wall = time.perf_counter() - started
    found.append(Measurement(rows, {"wall": wall}, cpu.per_row(before, cpu.seconds(server), rows)))


# --- queues and messages ---


@contextlib.contextmanager
def queue(endpoint, security=None):
    """An unused durable queue at each of some brokers, deleted afterwards; yields its name."""
    name = f"benchmark-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        for each in endpoint.split(","):
            admin = stack.enter_context(Admin(each, security=security))
            admin.declare_queue(name)
            stack.callback(admin.delete_queue, name, force=True)
        yield name


def rows_per_frame(size):
    """The number of messages of a body size in a frame of about the target size."""
    return max(1, min(limits.FRAME_TARGET_ROWS, limits.FRAME_TARGET_BYTES // size))


def bodies(rows, size):
    """Messages with bodies of one size and nothing else."""
    offsets = pa.array(range(0, (rows + 1) * size, size), pa.int32()).buffers()[1]
    data = pa.py_buffer(os.urandom(rows * size))
    body = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    return pa.RecordBatch.from_arrays([body], names=["body"])


def fill(endpoint, queue, *, rows, size, security=None):
    """Publishes messages to a queue and waits for their confirms; each broker gets its share."""
    first, *others = endpoint.split(",")
    if others:
        share = rows // (len(others) + 1)
        for other in others:
            fill(other, queue, rows=share, size=size, security=security)
        endpoint, rows = first, rows - share * len(others)
    frame = bodies(rows_per_frame(size), size)
    with Publisher(endpoint, routing_key=queue, security=security) as publisher:
        answers = [
            publisher.publish_batch(frame.slice(0, min(frame.num_rows, rows - first)))
            for first in range(0, rows, frame.num_rows)
        ]
    confirmed = sum(answer.result() for answer in answers)
    assert confirmed == rows, f"confirmed {confirmed} of {rows}"


# --- the report ---


def machine():
    """The properties of the machine that figures depend on."""
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
