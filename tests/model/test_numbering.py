"""A link by positions under every interleaving of faults: no message is lost, and none doubled."""

import pytest

from tests.model.explorer import explore
from tests.model.link_rules import NoGrace
from tests.model.linking import flaw
from tests.model.numbering import Numbering, Positioned
from tests.sizes import sized

POSITIONED = Positioned("id")
FAULTS = [
    {"cuts": 1, "window": sized(1, 2)},
    {"cuts": 2},
    {"cuts": 1, "answers": 1},
    {"cuts": 1, "deaths": 1},
    {"cuts": 1, "restarts": 1},
    {"cuts": 1, "zombies": 1},
    {"deaths": 1, "restarts": 1},
    {"deaths": 1, "answers": 1},
    {"returns": 1, "cuts": sized(0, 1), "window": 1},
]


@pytest.mark.parametrize("faults", FAULTS, ids=" and ".join)
def test_nothing_is_lost_or_doubled(faults):
    """L10, L30: in any order of two faults nothing is lost or doubled; content is never asked."""
    linking = Numbering(POSITIONED, "aa", **{"window": 2, **faults})
    explore(linking, judge=flaw(linking)).is_sound(50)


class ContentDecides(Positioned):
    """L30 off: equal messages have one key and one check."""

    def key(self, _number, body):
        return (ord(body), 3)

    def check(self, _number, body):
        return ord(body)


class NothingIsRemembered(NoGrace, Positioned):
    """L10 off: an entry is forgotten when its acknowledgement is answered."""


@pytest.mark.parametrize(
    ("edge", "faults", "wrong"),
    [
        (ContentDecides("id"), {"cuts": 1}, "is lost"),
        (NothingIsRemembered("id"), {"returns": 1}, "is doubled"),
    ],
    ids=["content decides", "forgotten at the answer"],
)
def test_without_a_rule_a_trace_is_found(edge, faults, wrong):
    """L10, L30: without a rule the explorer finds a loss or a double."""
    linking = Numbering(edge, "aa", window=1, **faults)
    explore(linking, judge=flaw(linking)).has(wrong)
