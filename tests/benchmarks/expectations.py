"""Compares results with the committed expectations.

Invariant: only ratios are compared, as rates depend on the machine. An expectation is a median over
all repetitions of the runs it was made of; its tolerance is half their range, and a tenth at least,
so a result is only called worse if it is outside the range of equal code.
"""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HELP = "compare the files that --json wrote with the expectations that are committed"
EXPECTED = Path(__file__).with_name("expected.json")
LEAST_TOLERANCE = 0.1

Table = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Expectation:
    """A median ratio and its relative tolerance.

    Attributes:
        ratio: Median.
        tolerance: Relative.
    """

    ratio: float
    tolerance: float

    @classmethod
    def of(cls, values):
        """The expectation from the ratios of all repetitions."""
        ratio = statistics.median(values)
        half = (max(values) - min(values)) / 2 / ratio
        return cls(round(ratio, 3), round(max(LEAST_TOLERANCE, half), 3))

    def verdict(self, ratio):
        """`worse`, `as expected` or `better`."""
        change = ratio / self.ratio - 1
        if abs(change) <= self.tolerance:
            return "as expected"
        return "better" if change > 0 else "worse"


def add_arguments(parser):
    """Options for files, expectations, and the action."""
    parser.add_argument("files", nargs="+", type=Path, help="results, as --json wrote them")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="(expected.json here)")
    parser.add_argument("--update", action="store_true", help="expect these results from now on")


def run(args):
    """Compares or updates; returns 1 if a result is worse, or was not measured."""
    measured = ratios([json.loads(file.read_text(encoding="utf-8")) for file in args.files])
    table = json.loads(args.expected.read_text("utf-8")) if args.expected.exists() else {}
    if args.update:
        args.expected.write_text(json.dumps(table | made(measured), indent=2) + "\n", "utf-8")
        return 0
    found = list(compared(measured, table))
    print(*(line for line, _ in found), sep="\n")
    return 0 if all(passed for _, passed in found) else 1


def ratios(results):
    """The ratios of all repetitions, by benchmark and comparison."""
    found = {}
    for result in results:
        benchmark = found.setdefault(result["conditions"]["benchmark"], {})
        for comparison in result["comparisons"]:
            for clock, values in comparison["ratios"].items():
                benchmark.setdefault(f"{comparison['title']}, by {clock}", []).extend(values)
    return found


def made(measured):
    """Expectations from measured ratios."""
    return {
        benchmark: {name: asdict(Expectation.of(values)) for name, values in comparisons.items()}
        for benchmark, comparisons in measured.items()
    }


def compared(measured, table):
    """A line for each expectation of a benchmark that ran, and whether it is met."""
    for benchmark, comparisons in measured.items():
        for name, expected in table.get(benchmark, {}).items():
            label = f"{benchmark}: {name}"
            if name not in comparisons:
                yield f"{label}: NOT MEASURED", False
                continue
            expectation = Expectation(**expected)
            ratio = statistics.median(comparisons[name])
            verdict = expectation.verdict(ratio)
            wanted = f"{expectation.ratio:.3g} +- {expectation.tolerance:.0%}"
            line = f"{label}: {ratio:.3g}, expected {wanted}: {verdict.upper()}"
            yield line, verdict != "worse"
        for name in sorted(comparisons.keys() - table.get(benchmark, {}).keys()):
            yield f"{benchmark}: {name}: nothing is expected; --update", True
