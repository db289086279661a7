"""Prints findings: the severity and the sentence, and below them the remedy."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

import click

from ackq.diagnosis.finding import Finding, Severity
from ackq.text import printable

_COLOURS: Final = {
    Severity.PROBLEM: "red",
    Severity.WARNING: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}
_INDENT: Final = max(len(severity.value) for severity in Severity) + 2
_WIDEST: Final = 110


def print_findings(findings: Iterable[Finding]) -> None:
    """Prints findings on stdout, wrapped on a terminal; a remedy is never wrapped."""
    for finding in findings:
        label = finding.severity.value.upper()
        coloured = click.style(label, fg=_COLOURS[finding.severity], bold=True)
        click.echo(coloured + " " * (_INDENT - len(label)) + _wrapped(finding.sentence))
        if finding.remedy:
            # Not wrapped, so that it can be copied.
            click.echo(" " * _INDENT + "-> " + printable(finding.remedy))


def _wrapped(sentence: str) -> str:
    text = printable(sentence)
    if not sys.stdout.isatty():
        return text
    width = min(shutil.get_terminal_size().columns, _WIDEST) - _INDENT
    lines = textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False)
    return ("\n" + " " * _INDENT).join(lines)
