"""The size of modules and folders: 20 to 450 lines of code, 3 to 13 modules."""

from collections import Counter

import pytest

from tests.structure.product import FOLDERS, GENERATED, code_lines, unjustified

MOST_LINES, FEWEST_LINES = 450, 20
MOST_MODULES, FEWEST_MODULES = 13, 3

# Modules below the minimum of lines that stand for a concept of their own.
SMALL = {
    "ackq_broker/core/stages.py": "named in commands and in records",
    "ackq/info.py": "the names of generated classes",
    "ackq/outcomes.py": "enums of client, Spark and broker",
    "ackq/text.py": "a function of the command line and the broker",
    "ackq/wire/allocator.py": "mallopt by ctypes",
    "ackq/wire/fetch_key.py": "rule A4, of client, Spark and broker",
    "ackq/wire/outcomes.py": "the enum's numbers",
    "ackq_broker/cli/commands.py": "the root of the commands",
    "ackq_broker/core/commands/decision.py": "types of all commands",
    "ackq_broker/engine/events.py": "rule M3",
    "ackq_broker/journal/files/checksum.py": "CRC-32, by the fastest there is",
}
# Folders with more or fewer modules.
FOLDER_SIZES = {
    "ackq/cli": "a module for each group of commands, and what they share",
    "ackq/client/consuming": "the application's side, the stream's side and what is between",
    "ackq/client/publishing": "two modes of publishing, and stages",
    "ackq_broker/service": "its rooms are folders",
    "ackq_broker/core/consuming": "all of it is one state machine",
}


def lines_by_module():
    return {
        path.relative_to(folder.parent).as_posix(): code_lines(path.read_text())
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if GENERATED not in path.parents and path.name not in ("__init__.py", "__main__.py")
    }


def test_no_module_is_too_long():
    """A module that exceeds a few screens has to be split."""
    too_long = {name: lines for name, lines in lines_by_module().items() if lines > MOST_LINES}
    assert too_long == {}


def test_a_short_module_is_a_thing_of_its_own():
    """A short module stands for a concept of its own; others are merged into their user."""
    small = {name for name, count in lines_by_module().items() if count < FEWEST_LINES}
    assert unjustified(small, SMALL) == []


def test_folders_hold_a_handful():
    """A folder has a number of modules that is read at a glance."""
    modules = Counter(name.rpartition("/")[0] for name in lines_by_module())
    odd = {name for name, count in modules.items() if not FEWEST_MODULES <= count <= MOST_MODULES}
    assert unjustified(odd, FOLDER_SIZES) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ('"""Docstring,\n\nof lines."""\n\nimport os\n# why\n', 1),
        ('def f():\n    """One."""\n    return 1\n\nclass A:\n    """Two."""\n    x = ""\n', 4),
        ('"""One."""\nx = """two\nlines"""\n', 2),
    ],
)
def test_what_counts_as_code(source, lines):
    """The check counts statements, not comments and docstrings."""
    assert code_lines(source) == lines


def test_a_table_may_name_nothing_else():
    """A violation without a table entry fails, and so does an entry without a violation."""
    assert unjustified({"a", "b"}, {"a": "why", "c": "why"}) == ["b", "c"]
    assert unjustified({"a"}, {"a": "why"}) == []
