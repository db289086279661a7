"""Two queries with copies of one checkpoint write to ackq: none loses a row without an error."""

import pytest

from tests.model import rules
from tests.model.explorer import explore
from tests.model.writing import Copies, Sink, flaw

TWO_TARGETS, ONE_TARGET = ("one", "two"), ("one", "one")


@pytest.mark.parametrize(
    ("targets", "operator"),
    [(TWO_TARGETS, False), (ONE_TARGET, False), (("one",), True)],
    ids=["two targets", "one target", "a forgotten writer"],
)
def test_copies_of_a_checkpoint_lose_nothing(targets, operator):
    """K3: each batch that a checkpoint has as committed is in its target, once.

    Every write under a forgotten writer's name is refused, whenever it was forgotten.
    """
    copies = Copies(Sink(targets), operator=operator)
    explore(copies, judge=flaw).is_sound(50 if operator else 500)


@pytest.mark.parametrize(
    ("rule", "targets", "told"),
    [
        (rules.AnyRepetition, TWO_TARGETS, "is lost"),
        (rules.AnyRepetition, ONE_TARGET, "is lost"),
        (rules.AnyTarget, TWO_TARGETS, "is lost"),
        (rules.AnyCount, ONE_TARGET, "is lost"),
        (rules.ForgottenIsNew, ("one",), "is doubled"),
    ],
)
def test_without_a_rule_a_row_is_lost(rule, targets, told):
    """K3: without a comparison the explorer finds a shortest trace to the loss, or the double."""
    copies = Copies(rule(targets), operator=rule is rules.ForgottenIsNew)
    explore(copies, judge=flaw).has(told)
