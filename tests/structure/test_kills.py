"""What removing unit tests has cost: mutants of the product that tests killed before and after.

Drawn by `python -m tests.mutants --count 60 --seed 30` for each area. `before` and `after` are the
test that failed, "timeout", "survived", "no test could run" as an import failed, or "not run": a
mutant that is killed now needs no other run. Numbers and lines of mutants are those of the code
when they were drawn.
"""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("kills.csv")


def test_no_mutant_that_was_killed_survives():
    """Every mutant that survives now survived before, too."""
    with TABLE.open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 399
    survive = [row for row in rows if row["after"] == "survived"]
    assert [row["mutant"] for row in survive if row["before"] != "survived"] == []
    killers = {row["after"].split("[")[0] for row in rows if "::" in row["after"]}
    gone = []
    for path, name in sorted(each.split("::")[:2] for each in killers):
        there = ROOT / path
        if not there.is_file() or not re.search(rf"\b{name}\b", there.read_text()):
            gone.append(f"{path}::{name}")
    assert gone == []
