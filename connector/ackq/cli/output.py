"""Output of the commands: tables for people, JSON with the protocol's names for programs."""

from __future__ import annotations

import base64
import codecs
import json
import shutil
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import click

from ackq.cli.failure import JSON_VERSION, as_json_line
from ackq.text import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Maximum number of bytes of a body that a table shows.
PREVIEW_BYTES: Final = 80
_GAP: Final = "  "
# Minimum number of columns of a text on a terminal, however narrow the terminal is.
_LEAST: Final = 16
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def as_dict(info: DataclassInstance) -> dict[str, Any]:
    """A dataclass that `Admin` returned as plain values: every field by its name."""
    return {field.name: _plain(getattr(info, field.name)) for field in fields(info)}


def print_json(value: object) -> None:
    """Prints one JSON document on stdout: its version, and `value` as `data`."""
    # json indents in pure Python: 10,000 queues take 1.2 s with it, and 0.1 s without.
    indent = 2 if sys.stdout.isatty() else None
    document = {"version": JSON_VERSION, "data": value}
    _print_text(json.dumps(document, ensure_ascii=False, indent=indent))


def print_json_line(value: Mapping[str, object]) -> None:
    """Prints a JSON document as one line on stdout: the version and the fields of `value`."""
    _print_text(json.dumps({"version": JSON_VERSION, **value}, ensure_ascii=False))


def _print_text(document: str) -> None:
    """Prints JSON, which is UTF-8 whatever the encoding of the terminal is."""
    click.echo(document.encode())


def say(text: str, value: Mapping[str, object], *, as_json: bool) -> None:
    """Prints a summary or notice on stderr: `text` for people, or `value` as a line of JSON."""
    click.echo(as_json_line("notice", value) if as_json else text, err=True)


def print_line(body: bytes) -> None:
    """Prints a body as a line on stdout: raw, or on a terminal with control characters escaped."""
    if sys.stdout.isatty():
        click.echo(printable(body.decode(errors="backslashreplace")))
    else:
        click.echo(body)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table on stdout, integers right-aligned; on a terminal texts are cut to fit.

    Without a terminal a line is as long as it has to be.
    """
    # A library that lays tables out took 6 s for 2,000 lines.
    values = list(rows)
    numeric = [
        bool(values) and all(isinstance(line[at], int) for line in values)
        for at in range(len(columns))
    ]
    lines = [tuple(columns), *(tuple(map(_cell, line)) for line in values)]
    if sys.stdout.isatty():
        lines = fitted(lines, shutil.get_terminal_size().columns, numeric)
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    printed = [
        _GAP.join(
            " " * (width - _width(cell)) + cell if right else cell + " " * (width - _width(cell))
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]
    printed[0] = click.style(printed[0], bold=True)
    # click writes in any locale, and strips colours when stdout is no terminal.
    click.echo("\n".join(printed))


def print_infos(
    infos: Iterable[DataclassInstance],
    columns: Mapping[str, str | Callable[[Any], object]],
    *,
    as_json: bool,
) -> None:
    """Prints a listing of `Admin` on stdout: all fields as JSON, or a table.

    Args:
        infos: The listed dataclasses, all of one class.
        columns: By title of a column: the name of its field, or a function that makes its cell.
        as_json: Whether to print JSON, for programs.
    """
    if as_json:
        print_json([as_dict(each) for each in infos])
        return
    made = [attrgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()]
    print_table(tuple(columns), ([cell(each) for cell in made] for each in infos))


def fitted(
    lines: Sequence[Sequence[str]], room: int, whole: Sequence[bool]
) -> list[tuple[str, ...]]:
    """Cuts cells so that the lines fit into a terminal, the widest cells to one width.

    Args:
        lines: Lines with the same number of cells, which are printed with a gap between two.
        room: Columns of the terminal.
        whole: For each cell of a line, whether it is never cut.
    """
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    room -= len(_GAP) * (len(widths) - 1)
    most = max(widths)
    while sum(widths) > room and most > _LEAST:
        most -= 1
        widths = [w if kept else min(w, most) for w, kept in zip(widths, whole, strict=True)]
    return [tuple(map(elided, line, widths)) for line in lines]


def elided(text: str, room: int) -> str:
    """A text, cut in its middle if it takes more than `room` columns of a terminal."""
    if _width(text) <= room:
        return text
    head = _start(text, room // 2)
    return f"{head}…{_start(text[::-1], room - 1 - _width(head))[::-1]}"


def _start(text: str, room: int) -> str:
    """The longest start of a text that fits into `room` columns."""
    return text[: bisect_right(list(accumulate(map(_width, text))), room)]


def print_fields(fields: Mapping[str, object]) -> None:
    """Prints names and values, one pair per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {_cell(value)}")


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as JSON values.

    `body` is text, or base64 when it is not UTF-8; `body_encoding` names the encoding.
    """
    plain = dict(row)
    body = plain.pop("body")
    text, encoding = _text(body)
    plain["body"], plain["body_encoding"] = text, encoding
    plain["headers"] = dict(plain["headers"])
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in plain.items()
    }


def preview(body: bytes | None, body_bytes: int | None = None) -> str:
    """The start of a body for a table; `body_bytes` is its length if `body` is only its start."""
    if body is None:
        return ""
    length = len(body) if body_bytes is None else body_bytes
    start, whole = body[:PREVIEW_BYTES], length <= PREVIEW_BYTES
    try:
        # A character that the cut splits is left out.
        text = codecs.getincrementaldecoder("utf-8")().decode(start, final=whole)
    except UnicodeDecodeError:
        text = start.decode(errors="backslashreplace")
    return text if whole else f"{text}… ({length} bytes)"


def age(milliseconds: int) -> str:
    """A duration for people."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds} ms" if milliseconds else "-"


def _text(body: bytes | None) -> tuple[str | None, str]:
    if body is None:
        return None, "utf-8"
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _plain(value: Any) -> Any:
    """A field's value as a JSON value."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [_plain(each) for each in value]
    if kind is bytes:
        return value.hex()
    return dict(sorted(value.items())) if kind is dict else as_dict(value)


def _cell(value: object) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    if isinstance(value, (list, tuple)):
        return printable(", ".join(map(str, value)))
    return printable(str(value))


def _width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
