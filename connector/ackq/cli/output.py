"""Output of the commands: tables for people, JSON with the protocol's names for programs."""

from __future__ import annotations

import base64
import codecs
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

# Width of tables on a pipe, wide enough for any: a pipe must not fold names.
_PIPE_WIDTH: Final = 1_000
_PREVIEW_BYTES: Final = 80
# The secret of a holder is never shown (sessions.proto).
_HIDDEN: Final = frozenset({"token"})


def as_dict(message: Message) -> dict[str, Any]:
    """A protobuf message as plain values: every field by its name, enums by their short name."""
    return {
        field.name: _field(message, field)
        for field in message.DESCRIPTOR.fields
        if field.name not in _HIDDEN
    }


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_json_line(value: object) -> None:
    """One of many JSON documents on stdout, a line each."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_line(body: bytes) -> None:
    """A body on a line of stdout: raw, but on a terminal without control characters."""
    if sys.stdout.isatty():
        click.echo(_printable(body.decode(errors="backslashreplace")))
    else:
        click.echo(body)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout, integers right-aligned."""
    lines = list(rows)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for at, name in enumerate(columns):
        numeric = bool(lines) and all(isinstance(line[at], int) for line in lines)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for line in lines:
        table.add_row(*(_cell(value) for value in line))
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    with console.capture() as printed:
        console.print(table)
    # click writes in any locale, and takes colours out of what is no terminal.
    click.echo(printed.get(), nl=False)


def print_fields(fields: Mapping[str, object]) -> None:
    """Names and values, one per line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {_cell(value)}")


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as JSON can hold it.

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


def preview(body: bytes | None) -> str:
    """The start of a body for a table."""
    if body is None:
        return ""
    start, whole = body[:_PREVIEW_BYTES], len(body) <= _PREVIEW_BYTES
    try:
        # The cut may go through a character, which is left out.
        text = codecs.getincrementaldecoder("utf-8")().decode(start, final=whole)
    except UnicodeDecodeError:
        text = repr(start)
    return text if whole else f"{text}… ({len(body)} bytes)"


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


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if isinstance(value, Mapping):  # of plain values: no message of the protocol has others
        return dict(sorted(value.items()))
    if field.is_repeated:
        return [_value(each, field) for each in value]
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        prefix = "".join(f"_{c}" if c.isupper() else c.upper() for c in field.enum_type.name)
        name = field.enum_type.values_by_number[value].name
        return name.removeprefix(f"{prefix.lstrip('_')}_").lower().replace("_", "-")
    return value


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = [f"{name}={each}" for name, each in value.items()]
    if isinstance(value, (list, tuple)):
        return _printable(", ".join(map(str, value)))
    return _printable(str(value))


def _printable(text: str) -> str:
    """Text with control characters escaped, so that it breaks no table and no terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
