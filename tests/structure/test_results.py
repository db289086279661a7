"""The results of the crash tests are data that parses, and names what exists."""

import re

import pytest

from tests import rules
from tests.crash.results import page
from tests.crash.simulation import bugs
from tests.crash.simulation.bugs import BUGS

TESTS = rules.ROOT / "tests"
FOUND_BY = {
    *("attack", "differential", "fuzz", "ledger", "model", "network", "new user", "overload"),
    *("reasoning", "simulation", "stress"),
}


def functions():
    """The names of all test functions."""
    texts = [path.read_text("utf-8") for path in TESTS.rglob("test_*.py")]
    return {name for text in texts for name in re.findall(r"def (test_\w+)\(", text)}


@pytest.mark.parametrize("name", page.COLUMNS)
def test_each_file_parses(name):
    """Each file has its columns, rows, and no row twice."""
    found = [tuple(row.items()) for row in page.rows(name)]
    assert found
    assert len(set(found)) == len(found)


def test_bugs_name_rules_and_tests_that_exist():
    """A bug has a rule, a known finder, and a test: a function, a file, or a planted bug."""
    known = functions()
    for row in page.rows("bugs"):
        assert row["rules"]
        assert set(row["rules"].split()) <= set(rules.defined()), row
        assert set(row["found_by"].split(", ")) <= FOUND_BY, row
        assert row["bug"], row
        assert row["now"], row
        assert row["tests"], row
        for test in row["tests"].split():
            assert test in known or test in BUGS or (TESTS / test).is_file(), row


def test_dates_ascend():
    """Bugs stand in the order in which they were recorded."""
    dates = [row["date"] for row in page.rows("bugs")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    assert dates == sorted(dates)


def test_planted_bugs_are_those_of_the_simulation():
    """The file has the bugs that can be planted, with their rules, and figures for each."""
    assert [row["bug"] for row in page.rows("planted_bugs")] == list(BUGS)
    assert {bug.rule for bug in BUGS.values()} <= set(rules.defined())
    for row in page.rows("planted_bugs"):
        assert row["bug"] in getattr(bugs, row["area"].upper()), row
        assert len(row["each"].split()) == len(row["first_seeds"].split()), row
        assert all(re.fullmatch(r"\d+|-", each) for each in row["each"].split()), row


def test_runs_are_of_programs_that_exist():
    """A run's program is a module of tests/crash, and its counts are numbers."""
    for row in page.rows("runs"):
        path = TESTS / "crash" / row["program"].replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), row
        for name in ("minutes", "messages", "lost", "doubled_against_the_rules"):
            assert re.fullmatch(r"[\d.]*", row[name]), row


def test_the_page_has_every_row():
    """The page is a Markdown table of each file, with the cells as they are."""
    lines = page.page().splitlines()
    tables = [line for line in lines if line.startswith("| ")]
    assert len(tables) == sum(len(page.rows(name)) + 2 for name in page.COLUMNS)
    for name, bug in BUGS.items():
        assert any(f"| {name} |" in line and bug.what in line for line in lines), name
