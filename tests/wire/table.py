"""The table of rules and brokers: what ran and held, and the differences with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests import rules
from tests.wire.differences import ABSENT, DIFFERENCES, RABBITMQ

# Sessions and Spark have nothing to be compared with.
RULES = tuple(rule for rule in rules.defined() if rule[0] in "PCQ")
BROKERS = ("ackq", RABBITMQ)

rules_of = rules.opening


def broker_of(item: pytest.Item) -> str | None:
    """The broker on which a scenario runs; None if the test is no scenario."""
    fixtures = getattr(item, "fixturenames", ())
    if "bench" in fixtures:
        return item.callspec.params["bench"]
    return "ackq" if "ackq" in fixtures else None


class Table:
    """Test outcomes by rule and broker."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], Counter[str]] = {}
        self._not_run: Counter[tuple[str, str]] = Counter()

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Adds one phase of a test; only the phase that decides the test's outcome counts."""
        broker = broker_of(item)
        decides = report.when == "call" or report.outcome != "passed"
        if broker is None or not decides:
            return
        if report.outcome == "skipped":
            self._not_run[broker, report.longrepr[2].removeprefix("Skipped: ")] += 1
        for rule in rules_of(item.function.__doc__):
            entry = DIFFERENCES.get(item.originalname)
            listed = entry is not None and entry.rule == rule
            passed = "differs" if listed and broker == RABBITMQ else "ok"
            outcome = {"passed": passed, "failed": "FAILED"}.get(report.outcome, report.outcome)
            self._cells.setdefault((rule, broker), Counter())[outcome] += 1

    def lines(self) -> Iterator[str]:
        """The lines of the table and the differences; scenarios that did not run in capitals."""
        if not self._cells:
            return
        yield f"{'rule':<6}{BROKERS[0]:<24}{BROKERS[1]}"
        for rule in RULES:
            ours, theirs = (self._cell(rule, broker) for broker in BROKERS)
            yield f"{rule:<6}{ours:<24}{theirs}"
        yield ""
        yield "Differences, checked by the scenarios that show them:"
        for entry in DIFFERENCES.values():
            yield f"  {RABBITMQ}: {entry.aspect}: {entry.behaviour!r}"
            yield f"      {entry.reason}"
        for (broker, reason), count in self._not_run.items():
            yield ""
            yield f"NOT RUN: {count} SCENARIOS ON {broker.upper()}: {reason}"

    def _cell(self, rule: str, broker: str) -> str:
        cell = self._cells.get((rule, broker))
        if cell is not None:
            if set(cell) == {"skipped"}:
                return "NOT RUN"
            return ", ".join(f"{count} {word}" for word, count in sorted(cell.items()))
        return f"- {ABSENT[rule]}" if broker != BROKERS[0] and rule in ABSENT else "-"
