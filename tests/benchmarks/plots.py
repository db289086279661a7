"""Plots as SVG: points with their spread on an axis, and stacked bars.

Invariant: pure functions of numbers and texts; every colour is a class of `report.STYLE`, so that a
plot follows the page's dark mode.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import harness

WIDTH = 860
_LEFT, _RIGHT = 12, 16
# Room for the numbers at the end of a row.
_VALUES = 200
_ROW, _MARK, _AXIS = 22, 17, 26
# An axis is logarithmic from this ratio of its ends on.
_LOG_FROM = 30


@dataclass(frozen=True)
class Point:
    """A median with its spread.

    Attributes:
        kind: The class that colours it.
        low: The minimum.
        median: The median.
        high: The maximum.
        text: The numbers, as written next to it.
    """

    kind: str
    low: float
    median: float
    high: float
    text: str


@dataclass(frozen=True)
class Row:
    """A label, and its points below each other; `bound` is marked on them."""

    label: str
    points: Sequence[Point]
    bound: float | None = None


@dataclass(frozen=True)
class Scale:
    """The scale of an axis: the range of its values."""

    low: float
    high: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float]) -> Scale:
        """A scale with room for all values: from zero, or logarithmic if they are far apart."""
        positive = [value for value in values if value > 0]
        least, most = min(positive, default=1.0), max(positive, default=1.0)
        if most / least < _LOG_FROM:
            return cls(0.0, most * 1.05, log=False)
        return cls(10 ** math.floor(math.log10(least)), most * 1.2, log=True)

    def at(self, value: float) -> float:
        """Horizontal position of a value."""
        if self.log:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT - _VALUES)

    def ticks(self) -> list[float]:
        """The values to write at the axis."""
        if self.log:
            decades = range(round(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [float(10**decade) for decade in decades]
        step = 10 ** math.floor(math.log10(self.high))
        for finer in (1, 2, 5):
            if self.high / (step / finer) >= 3:
                break
        count = int(self.high / (step / finer))
        return [number * step / finer for number in range(count + 1)]


def points(rows: Sequence[Row], *, unit: str, line: float | None = None) -> str:
    """Rows of points on one axis; `line` is drawn through all of them."""
    values = [end for row in rows for point in row.points for end in (point.low, point.high)]
    values += [row.bound for row in rows if row.bound is not None]
    scale = Scale.over([*values, *([] if line is None else [line])])
    parts: list[str] = []
    y = 0.0
    for row in rows:
        parts.append(_text(_LEFT, y + 15, row.label, "label"))
        y += _ROW
        top = y
        for point in row.points:
            parts += _point(scale, y + _MARK / 2, point)
            y += _MARK
        if row.bound is not None:
            parts.append(_line(scale.at(row.bound), top - 2, scale.at(row.bound), y + 2, "bound"))
        y += 6
    under = _axis(scale, y, unit)
    if line is not None:
        under.append(_line(scale.at(line), 0, scale.at(line), y, "line"))
    return _svg([*under, *parts], y + _AXIS)


def bars(rows: Mapping[str, Mapping[str, float]], *, unit: str) -> str:
    """A stacked bar for each row, of its parts, coloured by their names."""
    scale = Scale(0.0, max((sum(row.values()) for row in rows.values()), default=1.0) * 1.05, False)
    parts: list[str] = []
    y = 0.0
    for label, row in rows.items():
        parts.append(_text(_LEFT, y + 15, label, "label"))
        start = 0.0
        for name, value in row.items():
            x, end = scale.at(start), scale.at(start + value)
            title = html.escape(f"{name}: {value:.2f} {unit}")
            parts.append(
                f'<rect class="{name}" x="{x:.1f}" y="{y + _ROW:.1f}" height="{_MARK - 3}"'
                f' width="{max(0.0, end - x):.1f}"><title>{title}</title></rect>'
            )
            start += value
        text = " + ".join(harness.number(value) for value in row.values() if value >= 0.005)
        parts.append(_text(WIDTH - _RIGHT, y + _ROW + 11, text, "value end"))
        y += _ROW + _MARK + 6
    return _svg([*_axis(scale, y, unit), *parts], y + _AXIS)


def _point(scale: Scale, y: float, point: Point) -> list[str]:
    """The spread as a line, the median on it, the numbers at the end."""
    x = scale.at(point.median)
    return [
        _line(scale.at(point.low), y, scale.at(point.high), y, f"spread {point.kind}"),
        f'<circle class="{point.kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
        _text(WIDTH - _RIGHT, y + 4, point.text, "value end"),
    ]


def _axis(scale: Scale, y: float, unit: str) -> list[str]:
    """Lines at the ticks, and their numbers below."""
    parts = []
    for tick in scale.ticks():
        x = scale.at(tick)
        parts += [_line(x, 0, x, y, "grid"), _text(x, y + 16, harness.number(tick), "tick middle")]
    return [*parts, _text(WIDTH - _RIGHT, y + 16, unit, "tick end")]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _svg(parts: Sequence[str], height: float) -> str:
    body = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">\n{body}\n</svg>'
