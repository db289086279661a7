"""The verdicts on results: worse, as expected, or better."""

import argparse
import json

import expectations
import pytest
from expectations import Expectation


@pytest.fixture
def check(tmp_path):
    """Runs the command on results, as files."""

    def run(*results, update=False):
        files = []
        for number, result in enumerate(results):
            files.append(tmp_path / f"{number}.json")
            files[-1].write_text(json.dumps(result))
        expected = tmp_path / "expected.json"
        given = argparse.Namespace(files=files, expected=expected, update=update)
        return expectations.run(given)

    return run


def result(*ratios, benchmark="source", title="t"):
    comparison = {"title": title, "ratios": {"wall": list(ratios)}}
    return {"conditions": {"benchmark": benchmark}, "comparisons": [comparison]}


def test_the_tolerance_is_the_spread_that_was_measured():
    """The tolerance is half of the range, and a tenth at least."""
    assert Expectation.of([0.5, 1.0, 1.5]).tolerance == 0.5
    assert Expectation.of([1.0, 1.01]).tolerance == 0.1


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(0.79, "worse"), (0.81, "as expected"), (1.19, "as expected"), (1.21, "better")],
)
def test_what_is_outside_of_the_tolerance_is_worse_or_better(ratio, verdict):
    assert Expectation(1.0, 0.2).verdict(ratio) == verdict


def test_what_was_measured_is_expected_from_then_on(check, capsys):
    """An update expects all repetitions of all files; other benchmarks' expectations stay."""
    check(result(2.0, 2.0, benchmark="sink"), update=True)
    check(result(1.0, 1.1), result(0.9, 1.0), update=True)
    assert check(result(0.95)) == 0
    assert check(result(2.0, benchmark="sink")) == 0
    assert check(result(0.85)) == 1
    assert "source: t, by wall: 0.85, expected 1 +- 10%: WORSE" in capsys.readouterr().out


def test_what_was_not_measured_is_no_pass(check, capsys):
    check(result(1.0), update=True)
    assert check(result(1.0, title="other")) == 1
    assert "NOT MEASURED" in capsys.readouterr().out
