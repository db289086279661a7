"""One Markdown page of the runs of the crash tests, the bugs they found, and the planted bugs.

    python -m tests.crash.results > results.md

Invariant: the page shows only rows of the CSV files next to this module; a planted bug's rule and
description are those of its definition.
"""

import argparse
import csv
from pathlib import Path

from tests.crash.simulation.bugs import BUGS

HERE = Path(__file__).parent
# The columns of each file, in their order.
COLUMNS = {
    "runs": (
        *("program", "arguments", "minutes", "messages", "lost", "doubled_against_the_rules"),
        *("faults", "figures", "conditions"),
    ),
    "bugs": ("date", "found_by", "rules", "bug", "now", "tests"),
    "planted_bugs": ("bug", "area", "median", "each", "first_seeds", "seeds"),
}
INTRODUCTIONS = {
    "runs": "Long runs by hand, on 2 shared cores. A program is a module of `tests.crash`.",
    "bugs": "Bugs in the product, by the date of their first record. Each has a test.",
    "planted_bugs": "Worlds of the simulation until one fails: the median, and from each first"
    " seed. `-`: none of `seeds` worlds failed.",
}


def rows(name):
    """The rows of a file as dicts; ValueError where a line has other columns."""
    with (HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *found = csv.reader(file, strict=True)
    if tuple(header) != COLUMNS[name]:
        raise ValueError(f"{name}.csv has the columns {header}")
    return [dict(zip(header, cells, strict=True)) for cells in found]


def table(found):
    """The lines of a Markdown table of rows with the same keys."""
    yield "| " + " | ".join(name.replace("_", " ").capitalize() for name in found[0]) + " |"
    yield "| " + " | ".join("---" for _ in found[0]) + " |"
    for row in found:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row.values()) + " |"


def page():
    """The page's text."""
    lines = ["# Results of the crash tests"]
    for name, introduction in INTRODUCTIONS.items():
        found = rows(name)
        if name == "planted_bugs":
            found = [
                {**row, "rule": BUGS[row["bug"]].rule, "defect": BUGS[row["bug"]].what}
                for row in found
            ]
        title = name.replace("_", " ").capitalize()
        lines += ["", f"## {title}", "", introduction, "", *table(found)]
    return "\n".join(lines)


def main():
    """Prints the page."""
    argparse.ArgumentParser(prog="python -m tests.crash.results", description=__doc__).parse_args()
    print(page())
