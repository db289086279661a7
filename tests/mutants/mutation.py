"""The changes that make mutants of a module: one place in a function each."""

import ast
from typing import NamedTuple

SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
# Calls without an effect that a test should notice.
QUIET = ("_log", "warnings", "logging")


class Mutant(NamedTuple):
    """A change of a module.

    Attributes:
        index: Which of the module's changes, in the order of its source.
        line: Where it is.
        kind: What it does, in words.
    """

    index: int
    line: int
    kind: str


def mutants(source):
    """All changes of a module's source."""
    return [
        Mutant(index, node.lineno, kind)
        for index, (node, kind) in enumerate(_places(ast.parse(source)))
    ]


def mutated(source, index):
    """The module with one of its changes made."""
    tree = ast.parse(source)
    for at, (node, kind) in enumerate(_places(tree)):
        if at == index:
            _change(node, kind)
            return ast.fix_missing_locations(tree)
    raise IndexError(f"there is no mutant {index}")


def _places(tree):
    """Each node that can be changed, with what the change does; bodies of functions alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _within(statement)


def _within(node):
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(QUIET):
        return
    kind = _kind(node)
    if kind:
        yield node, kind
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(
                child, ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef | ast.Raise
            ):
                yield from _within(child)


def _kind(node):
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        return "another comparison"
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPPED:
        return "another operator"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return "the opposite condition"
    if isinstance(node, ast.Constant) and type(node.value) in {int, bool}:
        return "another constant"
    if isinstance(node, ast.Expr) and isinstance(_called(node.value), ast.Call):
        return "no call"
    return ""


def _called(value):
    return value.value if isinstance(value, ast.Await) else value


def _change(node, kind):
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPPED[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        node.op = SWAPPED[type(node.op)]()
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        node.value = not node.value if type(node.value) is bool else node.value + 1
    else:
        assert isinstance(node, ast.Expr), kind
        node.value = ast.Constant(value=None)
