"""The verdict of a comparison, and the order in which its sides run."""

import os

import harness
import pytest
import spark_harness
from harness import Comparison, Figures, Measurement, Pair


def measured(seconds, rows=100, **cpu_us):
    return Measurement(rows, {"wall": seconds}, cpu_us)


def test_a_ratio_is_made_within_a_repetition():
    """A ratio is of rates in one repetition, so that a slow machine slows both."""
    comparison = Comparison("t", "a", "s", 2.0, [measured(2.0), measured(8.0)], [measured(1.0)] * 2)
    assert comparison.ratios("wall") == [2.0, 8.0]
    assert comparison.passed


@pytest.mark.parametrize(("floor", "passed"), [(None, True), (0.5, True), (0.51, False)])
def test_the_median_is_held_against_the_floor(floor, passed):
    comparison = Comparison("t", "a", "s", floor, [measured(1.0)] * 3, [])
    comparison.subjects = [measured(1.0), measured(2.0), measured(100.0)]
    assert comparison.passed is passed
    assert any("BELOW THE FLOOR" in line for line in comparison.lines()) is not passed


def test_a_part_of_the_clocks_keeps_the_cpu():
    runs = [Measurement(1, {"a": 1.0, "b": 2.0}, {"jvm": 3.0})]
    part = Comparison("t", "a", "s", None, runs, runs).only("b")
    assert part.clocks == ["b"]
    assert part.anchors[0].cpu_us == {"jvm": 3.0}


def test_the_order_turns_round_after_a_warm_up():
    """The order is reversed, so that neither side always runs on what the other has left."""
    ran = []
    sides = {name: lambda name=name: ran.append(name) or measured(1.0) for name in "abc"}
    results = list(harness.rotate(sides, 3))
    assert "".join(ran) == "abc" + "abc" + "cba" + "abc"
    assert [set(each) for each in results] == [set("abc")] * 3


def test_many_sides_make_a_comparison_for_each_pair():
    """A side is measured once a repetition, however many pairs it is in."""
    sides = {"a": lambda: measured(1.0), "b": lambda: measured(2.0), "c": lambda: measured(4.0)}
    pairs = {"first": Pair("a", "b", 1.5), **harness.against("a", ["c"], "t")}
    first, second = harness.compare(sides, pairs, 2)
    assert (first.title, first.ratios("wall"), first.floor) == ("first", [2.0, 2.0], 1.5)
    assert (second.title, second.ratios("wall")) == ("t: a / c", [4.0, 4.0])
    assert second.subjects is first.subjects


def test_cpu_is_shown_where_it_was_read():
    """CPU medians, without parts that took none; 100 rows/s of 2 ms keep a fifth of a core busy."""
    runs = [measured(1.0, jvm=1e3, worker=0.0), measured(1.0, jvm=3e3, worker=0.0)]
    (line,) = harness.cpu_lines({"s": runs, "a": [measured(1.0)]})
    assert "jvm 2000.00" in line
    assert "worker" not in line
    assert line.endswith(f": 0.20 of {os.cpu_count()} cores")


def test_figures_leave_the_warm_up_out():
    figures = Figures("t", "ms")
    for value in (9.0, 1.0, 3.0):
        figures.add({"p50": value})
    (_, line) = figures.without_warm_up().lines()
    assert line.split() == ["p50", "2", "[1..3]"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1152345.0, "1,152,000"), (235.6, "236"), (0.861, "0.861"), (12345.0, "12,340"), (0.0, "0")],
)
def test_a_number_is_as_long_as_it_says_something(value, text):
    assert harness.number(value) == text


def test_the_usual_micro_batch_has_its_usual_name():
    """The names of results with 64m are those of the expectations, whatever other sizes run."""
    loads = [spark_harness.Load(100, spark_harness.rows_per_batch(100, m), 4) for m in (64, 400)]
    assert [each.name for each in loads] == ["100 B", "100 B, 2,000,000 rows per micro-batch"]
    assert loads[0].whole_name == "100 B, 320,000 rows per micro-batch"
