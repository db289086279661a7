"""Imports go one way, between layers, between rooms and between modules."""

import graphlib

import grimp
import pytest

from ackq.cli.commands import ackq
from ackq.cli.context import LaterCommand
from tests.structure.test_tools import run


def cycle(imports):
    """A cycle of modules that import each other, or None; `imports`: module -> its imports."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_imports_go_one_way():
    """Imports keep the contracts of pyproject.toml: layers, rooms, the purity of the core."""
    run("lint-imports")


def test_the_command_line_imports_little():
    """Help, version and shell completion answer at once: a command imports what it needs."""
    loaded = run(
        "python",
        "-c",
        "import sys; from ackq.cli.commands import ackq;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))",
    )
    heavy = {"grpc", "pyarrow", "google", "numpy", "rich", "asyncio", "pyspark"}
    assert heavy & set(loaded.split()) == set()


def test_a_command_that_is_imported_later_is_there():
    """A lazily imported command exists, and its line in the help is that of its own help."""
    later = [each for each in ackq.commands.values() if isinstance(each, LaterCommand)]
    assert "why" in [each.name for each in later]
    for each in later:
        assert each.load().name == each.name
        assert each.short_help == (each.load().help or "").partition("\n\n")[0].replace("\n", " ")


def test_no_module_imports_itself_in_a_circle():
    """No module imports itself in a cycle, including imports for types and within functions."""
    graph = grimp.build_graph("ackq", "ackq_link", "pyspark_ackq", "ackq_broker", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert cycle(imports) is None


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        ({"a": {"b"}, "b": {"c"}}, None),
        ({"a": {"b"}, "b": {"a"}}, {"a", "b"}),
        ({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}, {"b", "c", "d"}),
    ],
)
def test_a_circle_is_found(imports, found):
    """The check finds a cycle."""
    assert (None if found is None else set(cycle(imports))) == found
