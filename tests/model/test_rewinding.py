"""Rewinds under every interleaving of crashes: each message comes once more for each of them."""

import pytest

from tests.model import rules
from tests.model.broker import Broker
from tests.model.explorer import explore
from tests.model.rewinding import Rewinding, flaw
from tests.sizes import sized


@pytest.mark.parametrize(
    "faults",
    [
        {"crashes": 1, "rewinds": 1, "deletions": 0},
        {"crashes": sized(0, 1), "rewinds": 0, "deletions": 1},
        {"crashes": 1, "rewinds": 1, "deletions": 1},
        {"crashes": 2, "rewinds": 1, "deletions": 0},
    ],
    ids=["an operator", "a refresh", "both", "an operator and two crashes"],
)
def test_each_message_comes_once_more_for_each_rewind(faults):
    """S13, S14, K3, K15: no world loses a message, or doubles one in the target."""
    found = explore(Rewinding(Broker(), **faults), 2, judge=flaw)
    assert not found.wrong, str(found)
    assert found.worlds > 100


@pytest.mark.parametrize(
    ("broker", "rewinds", "deletions", "told"),
    [
        (rules.OpeningReadsOn, 0, 1, "is lost"),
        (rules.RewoundUnderOldTags, 1, 0, "the query can not go on"),
    ],
)
def test_without_a_rule_a_trace_is_found(broker, rewinds, deletions, told):
    """S14: without a rule the explorer finds a shortest trace to a flaw."""
    spark = Rewinding(broker(), crashes=0, rewinds=rewinds, deletions=deletions)
    found = explore(spark, 2, judge=flaw)
    print(found)
    assert told in found.wrong
