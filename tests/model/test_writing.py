"""Two queries with copies of one checkpoint write to ackq: none loses a row without an error."""

import pytest

from tests.model import rules
from tests.model.explorer import explore
from tests.model.writing import Copies, Sink, flaw

TWO_TARGETS, ONE_TARGET = ("one", "two"), ("one", "one")


@pytest.mark.parametrize("targets", [TWO_TARGETS, ONE_TARGET], ids=["two targets", "one target"])
def test_copies_of_a_checkpoint_lose_nothing(targets):
    """K3: each batch that a checkpoint has as committed is in its target, once."""
    found = explore(Copies(Sink(targets)), judge=flaw)
    assert not found.wrong, str(found)
    assert found.worlds > 500


@pytest.mark.parametrize(
    ("rule", "targets"),
    [
        (rules.AnyRepetition, TWO_TARGETS),
        (rules.AnyRepetition, ONE_TARGET),
        (rules.AnyTarget, TWO_TARGETS),
        (rules.AnyCount, ONE_TARGET),
    ],
)
def test_without_a_rule_a_row_is_lost(rule, targets):
    """K3: without a comparison the explorer finds a shortest trace to the loss."""
    found = explore(Copies(rule(targets)), judge=flaw)
    print(f"{rule.__name__}: {found}")
    assert "is lost" in found.wrong
    assert found.trace


def test_a_forgotten_writer_doubles_nothing():
    """K3: every write under a forgotten writer's name is refused, whenever it was forgotten."""
    found = explore(Copies(Sink(("one",)), operator=True), judge=flaw)
    assert not found.wrong, str(found)
    assert found.worlds > 50


def test_a_forgotten_writer_that_begins_anew_doubles_a_row():
    """K3: a committed batch is written again when the broker no longer knows its writer."""
    found = explore(Copies(rules.ForgottenIsNew(("one",)), operator=True), judge=flaw)
    print(found)
    assert "is doubled" in found.wrong
