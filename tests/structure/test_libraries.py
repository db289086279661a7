"""No test replaces a function of the standard library for the whole process."""

import ast
import sys

from tests.structure.product import ROOT

# What tests may replace for the process: its streams and arguments, and the hook for threads that
# fail, which no other test needs meanwhile.
PROCESS = {"sys", "threading.excepthook"}


def replaced(source):
    """What a source replaces of the standard library, by `setattr` of a patch: `os.open`."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "setattr"):
            continue
        match node.args:
            case [ast.Constant(str(name)), _]:
                library = name.partition(".")[0]
            case [ast.Name(library), ast.Constant(str(name)), *_] if library in imported:
                name = f"{library}.{name}"
            case [ast.Attribute(_, library), ast.Constant(str(name)), *_]:
                name = f"{library}.{name}"
            case _:
                continue
        if library in sys.stdlib_module_names and not {library, name} & PROCESS:
            yield name


def test_functions_of_libraries_are_replaced_for_one_module():
    """Another thread of the process would call the test's function: `tests.libraries` replaces."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        if ".setattr(" in (source := path.read_text())
        for name in replaced(source)
    }
    assert found == set()


def test_what_is_found():
    """By the library's name, through a module that imports it, and in a text."""
    lines = (
        "import os, sys, threading",
        "p.setattr(os, 'open', f)",
        "p.setattr(disk.time, 'sleep', f)",
        "p.setattr('shutil.which', f)",
        "p.setattr(socket.socket, 'bind', f)",
        "p.setattr(sys, 'argv', [])",
        "p.setattr('sys.stdin.isatty', f)",
        "p.setattr(threading, 'excepthook', f)",
        "p.setattr(signal, '_MOST', 3)",  # a module of the product
        "p.setattr(disk, 'os', f)",
    )
    expected = ["os.open", "time.sleep", "shutil.which", "socket.bind"]
    assert list(replaced("\n".join(lines))) == expected
