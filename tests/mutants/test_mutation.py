"""A mutant is its module with one change, in the body of a function."""

import ast

import pytest

from tests.mutants.__main__ import ROOT, that_reach
from tests.mutants.mutation import mutants, mutated

SOURCE = '''
"""A module with 1 docstring."""
LIMIT = 3

def f(a: int = 2) -> str:
    """Returns 5."""
    if a < 1:
        print(a)
        _log.info("%d", 7)
    return f"{a + 1}"

def g(a):
    return a + 1 and not a
'''


def test_each_place_is_a_mutant_once():
    """Annotations, texts, logs and what stands outside of functions are none."""
    assert [(each.line, each.kind) for each in mutants(SOURCE)] == [
        (7, "the opposite condition"),
        (7, "another comparison"),
        (7, "another constant"),
        (8, "no call"),
        (13, "another operator"),
        (13, "another operator"),
        (13, "another constant"),
    ]


@pytest.mark.parametrize("mutant", mutants(SOURCE), ids=lambda each: f"{each.index}")
def test_a_mutant_differs_in_one_line(mutant):
    """It compiles, and its source differs from the module's in the line that it names."""
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    tree = mutated(SOURCE, mutant.index)
    compile(tree, "mutant", "exec")
    after = ast.unparse(tree).splitlines()
    changed = [line for line, now in zip(before, after, strict=True) if line != now]
    assert len(changed) == 1


def test_there_is_no_other():
    """An index beyond the last is an error, not a module without a change."""
    with pytest.raises(IndexError, match="no mutant 7"):
        mutated(SOURCE, len(mutants(SOURCE)))


def test_modules_that_call_the_function_run_the_fastest_first():
    """Of the suite, a module that calls another function of the mutant's module does not run."""
    path = ROOT / "broker_stub/ackq_broker/core/columns/bitmaps.py"
    functions = {
        node.name: node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    called, other = functions["between"], functions["span"]
    reached = {
        "slow": [2.0, [[str(path), called.lineno]]],
        "fast": [1.0, [[str(path), other.lineno], [str(path), called.lineno]]],
        "none": [0.5, [[str(path), other.lineno]]],
    }
    mutant = next(
        each for each in mutants(path.read_text()) if called.lineno < each.line <= called.end_lineno
    )
    assert that_reach(reached, "ackq_broker.core.columns.bitmaps", mutant) == ["fast", "slow"]
