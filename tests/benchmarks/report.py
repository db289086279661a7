"""One page of the results of benchmarks, with plots: HTML without server and network.

Invariant: the page shows only content of the files; a point is a median with its minimum and
maximum over the repetitions.
"""

from __future__ import annotations

import argparse
import html
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
import plots
from plots import Point, Row

HELP = "make one page, with plots, of the files that --json wrote"
PARTS = ("client", "jvm", "worker", "broker")

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1c2126; --soft: #616b75;
  --grid: #e3e7eb; --subject: #1f6fb8; --anchor: #8a949e; --bound: #c8322b; --panel: #f6f8fa;
  --client: #b8a03c; --jvm: #4a7ebb; --worker: #d9772e; --broker: #3a9172; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181c; --text: #e4e9ee; --soft: #98a3ae; --grid: #2b3239;
    --subject: #62aef2; --anchor: #7d8994; --bound: #f0736c; --panel: #1b2026;
    --client: #d8c465; --jvm: #77a7e0; --worker: #ef9a5b; --broker: #5cbf9b; } }
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.6rem;
  border-bottom: 1px solid var(--grid); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; } p, li { color: var(--soft); }
nav a { margin-right: 1rem; } a { color: var(--subject); }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
svg text { fill: var(--soft); } svg .label { fill: var(--text); } svg .value { fill: var(--text);
  font-variant-numeric: tabular-nums; } svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; } svg .grid { stroke: var(--grid); }
svg .line { stroke: var(--soft); stroke-dasharray: 4 3; } svg .bound { stroke: var(--bound);
  stroke-width: 2; } svg .spread { stroke-width: 2; opacity: .65; }
svg line.subject { stroke: var(--subject); } svg circle.subject { fill: var(--subject); }
svg line.anchor { stroke: var(--anchor); } svg circle.anchor { fill: var(--ground);
  stroke: var(--anchor); stroke-width: 2; }
svg .client { fill: var(--client); } svg .jvm { fill: var(--jvm); }
svg .worker { fill: var(--worker); } svg .broker { fill: var(--broker); }
.key { font-size: 13px; color: var(--soft); margin: .2rem 0 .6rem; }
.key i { display: inline-block; width: .75em; height: .75em; border-radius: 2px;
  margin: 0 .35em 0 .9em; } .key i:first-child { margin-left: 0; }
.key i.round { border-radius: 50%; box-sizing: border-box; }
details { background: var(--panel); border-radius: 6px; padding: .5rem .9rem; font-size: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the files and the page."""
    parser.add_argument("files", nargs="+", type=Path, help="results, as --json wrote them")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(report.html)")


def run(args: argparse.Namespace) -> int:
    """Writes the page."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in args.files]
    args.out.write_text(page(results), encoding="utf-8")
    print(f"{args.out}: {len(results)} results")
    return 0


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page of all results, a section for each."""
    names = [result["conditions"].get("benchmark", "benchmark") for result in results]
    links = "".join(f'<a href="#r{at}">{html.escape(name)}</a>' for at, name in enumerate(names))
    sections = "\n".join(
        section(f"r{at}", name, result)
        for at, (name, result) in enumerate(zip(names, results, strict=True))
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ackq benchmarks</title>\n<style>{STYLE}</style></head>\n<body>\n"
        "<h1>ackq benchmarks</h1>\n<p>Each point is a median, its line goes from the least to the"
        " most of the repetitions. A ratio is made of two measurements of one repetition.</p>\n"
        f"<nav>{links}</nav>\n{sections}\n</body></html>\n"
    )


def section(anchor: str, name: str, result: Mapping[str, Any]) -> str:
    """The section of one result: ratios, rates, CPU, other figures, conditions."""
    comparisons = result.get("comparisons", [])
    parts = [f'<h2 id="{anchor}">{html.escape(name)}</h2>']
    if comparisons:
        parts += [
            "<h3>Ratio to the anchor</h3>",
            _key({"subject": "ratio", "bound": "bound", "line": "equal"}),
            plots.points(list(ratios(comparisons)), unit="ratio", line=1.0),
            "<h3>Rates</h3>",
            _key({"subject": "subject", "anchor": "anchor"}),
            plots.points(list(rates(comparisons)), unit="per s"),
        ]
    if used := cpu(comparisons):
        parts += [
            "<h3>CPU</h3>",
            _key({part: part for part in PARTS}),
            plots.bars(used, unit="us/row"),
        ]
    for figures in result.get("figures", []):
        parts += [
            f"<h3>{html.escape(figures['title'])}</h3>",
            plots.points(list(others(figures)), unit=figures["unit"]),
        ]
    return "\n".join([*parts, conditions(result["conditions"])])


def ratios(comparisons: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """A row for each comparison and clock; the bound is by the first clock."""
    for comparison in comparisons:
        for at, (clock, values) in enumerate(comparison["ratios"].items()):
            bound = comparison["floor"] if at == 0 else None
            yield Row(f"{_ratio_of(comparison)}, by {clock}", [_spread("subject", values)], bound)


def _ratio_of(comparison: Mapping[str, Any]) -> str:
    """The title with both sides, unless it names them."""
    sides = f"{comparison['subject']} / {comparison['anchor']}"
    title: str = comparison["title"]
    return title if title.endswith(sides) else f"{title}: {sides}"


def rates(comparisons: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Rows/s of both sides by the first clock."""
    for comparison in comparisons:
        clock = next(iter(comparison["ratios"]))
        yield Row(
            f"{_ratio_of(comparison)}, by {clock}",
            [
                _spread(kind, [run["rows"] / run["seconds"][clock] for run in comparison[runs]])
                for kind, runs in (("anchor", "anchors"), ("subject", "subjects"))
            ],
        )


def cpu(comparisons: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Median CPU by part of each side that was read, once for a side of many comparisons."""
    found: dict[str, dict[str, float]] = {}
    shown: list[Any] = []
    for comparison in comparisons:
        for side, runs in (("anchor", "anchors"), ("subject", "subjects")):
            read = [run["cpu_us"] for run in comparison[runs] if run.get("cpu_us")]
            if read and comparison[runs] not in shown:
                shown.append(comparison[runs])
                found[f"{comparison['title']}: {comparison[side]}"] = {
                    part: max(0.0, statistics.median(each[part] for each in read)) for part in PARTS
                }
    return found


def others(figures: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each figure, by its name."""
    for name, values in figures["values"].items():
        yield Row(name, [_spread("subject", values)])


def conditions(values: Mapping[str, str]) -> str:
    """The conditions that the figures depend on."""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>"
        for name, value in values.items()
    )
    return f"<details><summary>Conditions</summary><dl>{rows}</dl></details>"


def _spread(kind: str, values: Sequence[float]) -> Point:
    low, median, high = min(values), statistics.median(values), max(values)
    return Point(kind, low, median, high, harness.numbers(list(values)))


def _key(names: Mapping[str, str]) -> str:
    """The key of the colours."""
    marks = {
        "subject": 'class="round" style="background: var(--subject)"',
        "anchor": 'class="round" style="border: 2px solid var(--anchor)"',
        "bound": 'style="background: var(--bound); width: 3px"',
        "line": 'style="border-left: 2px dashed var(--soft); width: 0; border-radius: 0"',
    }
    parts = []
    for kind, text in names.items():
        mark = marks.get(kind, f'style="background: var(--{kind})"')
        parts.append(f"<i {mark}></i>{html.escape(text)}")
    return f'<p class="key">{"".join(parts)}</p>'
