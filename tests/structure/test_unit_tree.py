"""tests/unit mirrors the product, and starts no other process."""

import ast
from pathlib import Path

import pytest

from tests.structure.product import ROOT, unjustified

UNIT = ROOT / "tests/unit"
LAYERS = {
    "cli": ROOT / "connector/ackq/cli",
    "client": ROOT / "connector/ackq/client",
    "diagnosis": ROOT / "connector/ackq/diagnosis",
    "spark": ROOT / "connector/ackq/spark",
    "wire": ROOT / "connector/ackq/wire",
    "broker_cli": ROOT / "broker_stub/ackq_broker/cli",
    "broker": ROOT / "broker_stub/ackq_broker",
    "core": ROOT / "broker_stub/ackq_broker/core",
    "engine": ROOT / "broker_stub/ackq_broker/engine",
    "http": ROOT / "broker_stub/ackq_broker/http",
    "security": ROOT / "broker_stub/ackq_broker/security",
    "journal": ROOT / "broker_stub/ackq_broker/journal",
    "link": ROOT / "connector/ackq_link",
    "service": ROOT / "broker_stub/ackq_broker/service",
}
STARTS = {"subprocess", "multiprocessing", "embedded", "EmbeddedBroker", "os.kill", "os.fork"}

# Tests of more than one module, with their subject.
WHOLE = {
    "client/test_public_names.py": "the lazy names of the package",
    "core/test_model.py": "queues and channels against a model",
    "core/test_model_sessions.py": "sessions against a model",
    "core/test_numbers.py": "the numbers in every command",
    "core/test_leaks.py": "memory of the C library, which any command may leak",
    "core/state/test_transitions.py": "the table of transitions of a message in a queue",
    "core/views/test_views.py": "the whole room: views change nothing",
    "core/test_restart.py": "recovery of the whole state",
    "journal/test_shortened.py": "a log that is shorter than what was synced, through every tool",
}
# Tests that need another process all the same, with the reason.
PROCESSES = {"client/threads.py": "an interpreter that imports, exits or forks with a client"}


def product_module(test):
    """The product's module or package that a unit test is named after; None: there is none.

    `test_x.py` is the test of `x.py`, and so is `test_x_life.py`, of one side of it.
    """
    layer, *folders = test.relative_to(UNIT).parent.parts or ("",)
    home = LAYERS.get(layer, ROOT / "connector/ackq").joinpath(*folders)
    words = test.stem.removeprefix("test_").split("_")
    for count in range(len(words), 0, -1):
        named = home / "_".join(words[:count])
        if named.with_suffix(".py").exists() or named.is_dir():
            return named
    return None


def starts(source):
    """The names in a source that could start a process, or end one."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {
        alias.name
        for node in ast.walk(tree)
        for alias in getattr(node, "names", [])
        if isinstance(alias, ast.alias)
    }
    names |= {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return names & STARTS


def test_the_tree_mirrors_the_product():
    """The test of a module is at the module's place."""
    others = {
        path.relative_to(UNIT).as_posix()
        for path in UNIT.rglob("test_*.py")
        if product_module(path) is None
    }
    assert unjustified(others, WHOLE) == []


def test_no_process_is_started():
    """A test that needs another process belongs to another suite."""
    found = {
        path.relative_to(UNIT).as_posix() for path in UNIT.rglob("*.py") if starts(path.read_text())
    }
    assert unjustified(found, PROCESSES) == []


@pytest.mark.parametrize(
    ("test", "module"),
    [
        ("core/test_core.py", "core.py"),
        ("core/sessions/test_timeout.py", "timeout.py"),
        ("core/sessions/test_timeout_of_a_reader.py", "timeout.py"),
        ("core/sessions/test_nothing.py", None),
        ("core/nowhere/test_timeout.py", None),
        ("test_errors.py", "errors.py"),
    ],
)
def test_a_test_without_its_module_is_found(test, module):
    """The check finds a test without its module."""
    found = product_module(UNIT / Path(test))
    assert (found and f"{found.name}.py") == module


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import subprocess", {"subprocess"}),
        ("from ackq_broker import embedded", {"embedded"}),
        ("import os\nos.kill(1, 9)", {"os.kill"}),
        ("import os\nos.stat('.')", set()),
    ],
)
def test_a_started_process_is_found(source, found):
    """The check finds a started process."""
    assert starts(source) == found
