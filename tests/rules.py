"""The rules of proto/README.md: where they are defined, and which a text or a test cites.

The only reader of rule numbers: `pytest --rule` selects tests with it, the structure tests check
the tree with it, the conformance table takes its rows from it. Pure, except for reading files.

A citation is a rule's letter and number as a word of its own (S5), or a range with both ends in
full: with a hyphen, a dash, or the word "to" between them.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DEFINITIONS = "proto/README.md"

# The letters, in the order of the headings that define their rules.
HEADINGS = {
    "P": "Publishing",
    "C": "Consuming",
    "Q": "Queues",
    "S": "Sessions",
    "K": "Spark",
    "A": "Access",
    "O": "Operations",
    "I": "Invariants",
    "M": "Monitoring",
    "L": "Links",
}

_NUMBER = rf"([{''.join(HEADINGS)}])(\d{{1,2}})"
_CITATION = re.compile(rf"\b{_NUMBER}(?:(?:\s?[-\N{{EN DASH}}]\s?|\s+to\s+)\1(\d{{1,2}}))?\b")
# In a name, which has no capitals, the number stands between underscores: test_s5_detaches.
_IN_A_NAME = re.compile(rf"(?<![^\W_]){_NUMBER}(?![^\W_])", re.IGNORECASE)
# A definition is a paragraph that begins with its anchor and its number in bold.
_DEFINITION = re.compile(rf'(?:<a id="([^"]*)"></a>)?\*\*{_NUMBER} ([^*]+)\*\* \S')
_HEADING = re.compile(r"## (.+)")


class Definition(NamedTuple):
    """A rule as proto/README.md has it; `anchor` is "" where there is none."""

    rule: str
    title: str
    anchor: str
    heading: str


def definitions(text: str) -> list[Definition]:
    """The rules that a text defines, in its order."""
    found = []
    heading = ""
    for line in text.splitlines():
        if match := _HEADING.fullmatch(line):
            heading = match[1]
        elif match := _DEFINITION.match(line):
            anchor, letter, number, title = match.groups()
            found.append(Definition(f"{letter}{number}", title.rstrip("."), anchor or "", heading))
    return found


@cache
def defined() -> dict[str, str]:
    """The title of every rule, in the order of proto/README.md."""
    text = (ROOT / DEFINITIONS).read_text(encoding="utf-8")
    return {each.rule: each.title for each in definitions(text)}


def cited(text: str) -> set[str]:
    """Every rule that a text cites, including those between the ends of a range."""
    return {rule for span in _spans(text) for rule in span}


def named(text: str) -> set[str]:
    """The rules that a text cites one by one, in no range."""
    return {span[0] for span in _spans(text) if len(span) == 1}


def carried(name: str, *docstrings: str | None, rules: Collection[str]) -> set[str]:
    """The rules that a test carries, from the nearest place that cites any.

    The rules in its name and its own docstring; if there are none, those in its class's; if there
    are none either, those in its module's. So a test with rules of its own is not selected by the
    rules of its neighbours. A range counts as all of its rules, unless it spans all of a letter:
    such a range is about no single rule.

    Args:
        name: The name of the test's function.
        docstrings: The test's, its class's, its module's.
        rules: All rules.
    """
    own = _in_name(name) & set(rules)
    for docstring in docstrings:
        spans = [span for span in _spans(docstring or "") if not _is_whole_letter(span, rules)]
        own |= {rule for span in spans for rule in span}
        if own:
            break
    return own


def wanted(options: Collection[str], rules: Mapping[str, str]) -> list[str]:
    """The rules that `--rule` names, each as a number, a range, or several with commas between.

    Raises:
        ValueError: A rule does not exist; the message names the nearest ones.
    """
    found: dict[str, None] = {}
    for part in (part.strip() for option in options for part in option.split(",")):
        match = _CITATION.fullmatch(part.upper().replace(" TO ", " to "))
        for rule in _span(match) if match and _ascends(match) else (part,):
            if rule not in rules:
                raise ValueError(f"There is no rule '{rule}'. {_nearest(rule, rules)}")
            found[rule] = None
    return list(found)


def opening(docstring: str | None) -> list[str]:
    """The rules that a scenario's docstring opens with: "P4, Q7: ..."."""
    head, colon, _ = (docstring or "").partition(": ")
    rules = head.split(", ")
    return rules if colon and all(map(re.compile(_NUMBER).fullmatch, rules)) else []


def of_tests(source: str) -> Iterator[tuple[str, set[str]]]:
    """Each test of a module with the rules that its own name and docstring cite one by one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node.name, _in_name(node.name) | named(ast.get_docstring(node) or "")


def _in_name(name: str) -> set[str]:
    return {f"{letter.upper()}{number}" for letter, number in _IN_A_NAME.findall(name)}


def _spans(text: str) -> Iterator[list[str]]:
    """Each citation of a text as the rules that it covers."""
    for match in _CITATION.finditer(text):
        yield from (_span(match),) if _ascends(match) else ([rule] for rule in _ends(match))


def _span(match: re.Match[str]) -> list[str]:
    letter, first, last = match.groups()
    return [f"{letter}{number}" for number in range(int(first), int(last or first) + 1)]


def _ascends(match: re.Match[str]) -> bool:
    return match[3] is None or int(match[2]) < int(match[3])


def _ends(match: re.Match[str]) -> tuple[str, str]:
    return f"{match[1]}{match[2]}", f"{match[1]}{match[3]}"


def _is_whole_letter(span: list[str], rules: Collection[str]) -> bool:
    letter = span[0][0]
    return len(span) > 1 and set(span) >= {rule for rule in rules if rule[0] == letter}


def _nearest(rule: str, rules: Mapping[str, str]) -> str:
    """A hint with the nearest existing rule, and where all rules are defined."""
    same = [each for each in rules if each[0] == rule[:1].upper()]
    close = difflib.get_close_matches(rule.upper(), same, n=1, cutoff=0)
    nearest = f"The nearest is {close[0]} ({rules[close[0]]}). " if close else ""
    letters = ", ".join(f"{letter} {heading}" for letter, heading in HEADINGS.items())
    return f"{nearest}All of them are in {DEFINITIONS}: {letters}."
