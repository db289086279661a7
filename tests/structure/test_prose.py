"""Docstrings, comments, errors, log lines and help are plain technical English.

The patterns below were the marks of a dialect that a stranger could not read: a pronoun in the
place of a message, a position or a broker. What a reader needs is the noun.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("connector", "broker_stub", "jobs")

# What is not written, and what is written instead.
PATTERNS = {
    r"\bthose of (some|them|it|all|what|whom)\b": "the noun",
    r"\bso many of\b": "a number of",
    r"\b(so|as) many (messages|rows|bytes) (more|again)\b": "how many",
    r"\b(is|are|was|be|does|do|needed|held|used|known|there) no more\b(?! than)": "no longer",
    r"\bany ?more\b": "longer",
    r"\bof before\b": "previous, earlier",
    r"\b(is|are|was|were) told\b": "learns, is notified, is set",
    r"\btold (of|about|in|here|there)\b": "reported, stated",
    r"\banew\b": "again, new",
    r"\bwhoever\b": "the client, the caller",
    r"\b(over|down|up) there\b": "at the remote broker",
    r"\bwhat (is|was|are|were) (there|here)\b": "the noun",
    r"\bis (gone|no more)\b": "was deleted, has ended",
    r"\ba life\b": "a delivery attempt, a process",
    r"\blives (left|of a message)\b": "delivery attempts",
    r"\bmeanwhile gone\b": "deleted in the meantime",
    r"\bit is said\b": "it is documented",
    r"\bof them that\b": "which",
    r"\bsuch as are\b": "that are",
    r"\bas far as (it|they) (goes|go)\b": "within its limits",
    r"\bthe one before\b": "the previous one",
    r"\bnothing of ours\b": "none of our code",
}
# More that no text of the running product has: errors, log lines, help.
TEXTS = {
    r"\bother broker\b": "remote broker",
    r"\bbelieved\b": "accepted, counts",
    r"\b(told|said) (to|of)\b": "set, reported",
    r"\b(is|are|was|were|be) gone\b": "was deleted, has ended, is lost",
    r"\bis not there\b": "does not exist",
    r"\ball the same\b": "equal",
    r"\bof one version\b": "of the same version",
    r"\b(comes|stands|is there) twice\b": "is given twice",
    r"\btakes no publishes\b": "publishers are blocked",
    r"\bgoe?s? for good\b": "is deleted",
}
# A first line begins with the thing, or with what is done to it.
FIRST = re.compile(r"(What|Those|Whoever|So many|That which|Of (the|those|these|all)) ")


def files():
    """The Python files of the product, generated ones left out."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "v1" not in path.parts:
                yield path


def docstrings(tree):
    """(line, text) of each docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def run_time_texts(tree):
    """(line, text) of each string of some words that is no docstring: f-strings without values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(part.value for part in parts if _is_string(part))
        if text.count(" ") > 1:
            yield node.lineno, text


def _is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_text(node):
    return isinstance(node, ast.Expr) and _is_string(node.value)


def comments(source):
    """(line, text) of each comment; neighbours are one, and marks for tools are left out."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = re.sub(r"#\s*(noqa|type|pragma|fmt|ruff).*", "", token.string).strip("# ")
            if found and token.start[0] == found[-1][0] + 1:
                found[-1] = (token.start[0], f"{found[-1][1]} {text}")
            else:
                found.append((token.start[0], text))
    return found


def flaws(source):
    """(line, pattern or first words, what is written instead) of a module's source."""
    tree = ast.parse(source)
    texts = [(line, text, PATTERNS) for line, text in (*docstrings(tree), *comments(source))]
    for line, text in docstrings(tree):
        if began := FIRST.match(text):
            yield line, f"begins with {began.group()!r}", "the thing, or what is done to it"
    texts += [(line, text, PATTERNS | TEXTS) for line, text in run_time_texts(tree)]
    for line, text, patterns in texts:
        flat = " ".join(text.split())
        for pattern, instead in patterns.items():
            for match in re.finditer(pattern, flat, re.IGNORECASE):
                around = flat[max(0, match.start() - 30) : match.end() + 30]
                yield line, around, instead


def test_the_product_is_written_in_plain_words():
    """Each finding names the file, the words, and what is written instead of them."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}: {instead}"
        for path in files()
        for line, words, instead in flaws(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"""What is left."""', "begins with 'What '"),
        ('"""The positions, those of some queues."""', "The positions, those of some queues."),
        ("# Blocks that are\n# needed no\n# more by it", "Blocks that are needed no more by it"),
        ("def f():\n    '''Is told of it.'''", "Is told of it."),
    ],
)
def test_a_flaw_is_found(source, words):
    """In a docstring, and in a comment over several lines."""
    assert words in [found for _, found, _ in flaws(source)]


def test_marks_for_tools_are_no_prose():
    """The reason behind `noqa` is short, and stands for the tool."""
    assert list(flaws("x = 1  # noqa: E501 - what is told of before")) == []
