"""A line of the product, changed for a while.

The code object of the function is replaced by one of its source with other text in one place. So
whoever has the function already runs the changed line, too; and a line that is not there any more
is an error at once, not a bug that is never found.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import NamedTuple


class Line(NamedTuple):
    """A text of a function's source that occurs once, and what stands there instead."""

    function: Callable
    text: str
    instead: str


class Bug(NamedTuple):
    """A planted bug.

    Attributes:
        name: As the command line has it.
        rule: The rule of proto/README.md that it breaks.
        what: What is wrong with it, in one line.
        lines: The lines that are changed.
        links: It is found in worlds with links.
    """

    name: str
    rule: str
    what: str
    lines: tuple[Line, ...]
    links: bool = False

    @contextmanager
    def __call__(self):
        """The product has the bug inside."""
        functions = dict.fromkeys(line.function for line in self.lines)
        changed = [(each, _changed(each, self.lines)) for each in functions]
        with ExitStack() as stack:
            for function, code in changed:
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield


def _changed(function, lines):
    """A function's code with the text of its lines replaced; AssertionError when it has no such."""
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
