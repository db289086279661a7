"""One class name, one meaning; and retired names are not used."""

import ast
from collections import defaultdict

from tests.structure.product import modules, unjustified

# Class names of two modules, with the reason.
_REPLY = "a command's reply and its record, always written with their module"
_BOTH_ENDS = "the client's end and the broker's end of one thing"
SHARED = {
    "OutcomeStage": _BOTH_ENDS,
    "Published": _REPLY,
    "Publisher": _BOTH_ENDS,
    "Redriven": _REPLY,
    "Session": _BOTH_ENDS,
    "Settlement": "a future of the client, and the reply that resolves it",
    "Stage": _BOTH_ENDS,
    "Started": _REPLY,
    "Ticked": _REPLY,
}
# Names of code parts that have better names now.
RETIRED = frozenset(
    (
        *("How", "how_of", "Fold", "Teller", "Notices", "told_below", "Bell", "_nobody"),
        *("_forsaken", "despite", "Wishes", "Admission", "Lessee", "Departures", "bury"),
        *("come_back", "Death", "mortal", "Disposed", "Fate", "let_go", "take_in", "dig"),
        *("HeldBack", "HeldElsewhere", "stranded", "Unanswered", "ChannelMemory", "DiskWatch"),
    )
)
RETIRED_MODULES = frozenset(
    ("how", "telling", "holding", "parts", "folding", "departures", "detaching", "memory", "flow")
)


def class_names(trees):
    """The modules of each class name that is in more than one."""
    found = defaultdict(set)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def identifiers(tree):
    """Every name that a module defines or uses."""
    for node in ast.walk(tree):
        for field in ("name", "id", "attr", "arg", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def test_a_class_name_has_one_meaning():
    """A class name has one meaning, except a command's reply and its record."""
    assert unjustified(class_names(modules()), SHARED) == []


def test_retired_words_stay_away():
    """Names that were hard to understand are not used again."""
    found = {
        (module, name)
        for module, tree in modules().items()
        for name in {*identifiers(tree)} & RETIRED
    }
    assert found == set()
    assert [name for name in modules() if name.rpartition(".")[2] in RETIRED_MODULES] == []


def test_the_checks_find_what_they_look_for():
    """The checks find a name in a class, a function, an argument, an attribute and an import."""
    tree = ast.parse(
        "from a import b as c\nclass D:\n    def e(self, f):\n        self.g = h(i=1)\n"
    )
    assert set("bcDefghi") <= {*identifiers(tree)}
    other = ast.parse("if True:\n    class D: ...\nclass E: ...\n")
    assert class_names({"one": tree, "two": other}) == {"D": {"one", "two"}}
