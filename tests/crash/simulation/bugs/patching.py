"""Temporarily changes a line of the product.

The code object of the function is replaced by one compiled from its source with one text changed.
So callers that hold the function run the changed line, too; and a line that no longer exists is an
error at once, not a bug that is never found.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import NamedTuple


class Line(NamedTuple):
    """A text that occurs once in a function's source, and its replacement; without one it goes."""

    function: Callable
    text: str
    instead: str = "pass"


def never(function, condition):
    """A condition of an `if` that is taken for false."""
    return Line(function, f"if {condition}:", "if False:")


class Bug:
    """A planted bug.

    Args:
        text: The rule of proto/README.md that it breaks, and the defect.
        lines: The lines that are changed.
        links: It is found in worlds with links.
    """

    def __init__(self, text, *lines, links=False):
        self.rule, _, self.what = text.partition(": ")
        self.lines, self.links = lines, links

    @contextmanager
    def __call__(self):
        """Runs the product with the bug inside the context."""
        functions = dict.fromkeys(line.function for line in self.lines)
        changed = [(each, _changed(each, self.lines)) for each in functions]
        with ExitStack() as stack:
            for function, code in changed:
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield


def _changed(function, lines):
    """A function's code with its lines replaced; AssertionError if a text does not occur once."""
    source = textwrap.dedent(inspect.getsource(function))
    where = f"{function.__module__}.{function.__qualname__}"
    for line in lines:
        if line.function is function:
            found = source.count(line.text)
            assert found == 1, f"{where} has {found} times: {line.text}"
            source = source.replace(line.text, line.instead)
    module = compile(
        source,
        f"<{where} with a bug>",
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    (code,) = [
        each
        for each in module.co_consts
        if isinstance(each, CodeType) and each.co_name == function.__name__
    ]
    assert code.co_freevars == function.__code__.co_freevars, where
    return code
