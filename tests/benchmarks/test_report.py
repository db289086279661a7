"""The page of results: complete, and readable by a parser of XML."""

import re
from xml.etree import ElementTree as ET

import plots
import pytest
import report
from plots import Point, Row, Scale

RUN = {"rows": 10, "seconds": {"wall": 2.0}, "cpu_us": dict.fromkeys(report.PARTS, 1.5)}
RESULT = {
    "conditions": {"benchmark": "source <1>", "sync": "fdatasync"},
    "comparisons": [
        {
            "title": "100 B & more",
            "anchor": "in memory",
            "subject": "ackq",
            "floor": 0.5,
            "anchors": [RUN],
            "subjects": [RUN],
            "ratios": {"wall": [0.5, 1.0, 2.0]},
        }
    ],
    "figures": [{"title": "delays", "unit": "ms", "values": {"p50": [1.0], "p99": [100.0]}}],
}


def drawings(page):
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]  # noqa: S314


def test_a_page_has_every_figure():
    """The page draws ratio, rate, CPU and the other figures."""
    page = report.page([RESULT])
    assert len(drawings(page)) == 4
    assert "1 [0.5..2]" in page
    assert "source &lt;1&gt;" in page
    assert "100 B &amp; more" in page
    assert "<dt>sync</dt><dd>fdatasync</dd>" in page


def test_a_page_needs_no_network():
    """The page has no address and no script."""
    page = report.page([RESULT])
    assert re.findall(r"https?:|<script|<link|@import|url\(", page) == []


def test_what_has_no_figure_has_no_drawing():
    """The page of results of one kind draws only that kind."""
    page = report.page([{"conditions": {}, "figures": RESULT["figures"]}])
    assert len(drawings(page)) == 1
    no_cpu = {**RUN, "cpu_us": {}}
    comparison = {**RESULT["comparisons"][0], "anchors": [no_cpu], "subjects": [no_cpu]}
    assert len(drawings(report.page([{"conditions": {}, "comparisons": [comparison]}]))) == 2


@pytest.mark.parametrize(
    ("values", "log"), [([1.0, 29.0], False), ([1.0, 31.0], True), ([0.0], False)]
)
def test_an_axis_is_logarithmic_for_what_is_far_apart(values, log):
    scale = Scale.over(values)
    assert scale.log is log
    ticks = [scale.at(tick) for tick in scale.ticks()]
    assert ticks == sorted(ticks)
    assert len(ticks) >= 2


@pytest.mark.parametrize("values", [[0.86, 1.2], [3.0, 70.0], [2e5, 1.2e6], [0.002, 9000.0]])
def test_every_value_is_on_the_axis(values):
    scale = Scale.over(values)
    for value in values:
        assert scale.at(scale.low) <= scale.at(value) <= scale.at(scale.high) < plots.WIDTH


def test_a_bound_is_marked():
    """The mark of a bound is at its value."""
    row = Row("r", [Point("subject", 1.0, 2.0, 3.0, "2")], bound=1.5)
    (bound,) = [
        line
        for line in ET.fromstring(plots.points([row], unit="u")).iter("line")  # noqa: S314
        if line.get("class") == "bound"
    ]
    assert float(bound.get("x1")) == pytest.approx(Scale.over([1.0, 3.0, 1.5]).at(1.5), abs=0.1)
