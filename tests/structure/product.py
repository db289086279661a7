"""The product's modules as the tests of this folder see them: parsed, counted, by dotted name."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    ROOT / "connector/ackq",
    ROOT / "connector/ackq_link",
    ROOT / "connector/pyspark_ackq",
    ROOT / "broker_stub/ackq_broker",
)
GENERATED = ROOT / "connector/ackq/v1"


@cache
def modules():
    """The parsed modules of the product, generated ones left out, by dotted name."""
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts): ast.parse(path.read_text())
        for folder in FOLDERS
        for path in sorted(folder.rglob("*.py"))
        if GENERATED not in path.parents
    }


def code_lines(source):
    """The number of lines of a module that are neither blank, nor comment, nor docstring."""
    documented = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            documented.update(range(body[0].lineno, body[0].end_lineno + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documented
        for number, line in enumerate(source.splitlines(), 1)
    )


def _is_text(statement):
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def unjustified(found, table):
    """The entries of one side only: violations without entry, and entries without violation."""
    return sorted(set(found) ^ set(table))
