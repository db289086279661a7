"""A link under every interleaving of faults: no message is lost, only those in doubt doubled."""

import pytest
from pyroaring import BitMap

from ackq_broker.core import commands as c
from tests.model import link_rules as rules
from tests.model.edge import Edge
from tests.model.explorer import explore
from tests.model.linking import Linking, flaw
from tests.sizes import sized

STORED = c.LinkAck.STORED
# Explorations share its cache of calls.
EDGES = {keys: Edge(keys) for keys in ("id", "content")}


def explored(edge, bodies="aa", **faults):
    """Returns the result of an exploration of a link."""
    linking = Linking(edge, bodies, **faults)
    return explore(linking, judge=flaw(linking))


def test_a_process_that_is_not_fenced_loses():
    """L1: an unfenced process gets permits of its successor, and acknowledges by them."""
    linking = Linking(rules.NoFence("id"), "aa", zombies=1)
    told = flaw(linking)
    found = explore(linking, judge=lambda edge, world, n: told(edge, world._replace(stuck=""), n))
    found.has("is lost")


@pytest.mark.parametrize("keys", ["id", "content"])
@pytest.mark.parametrize(
    "faults",
    [
        {"cuts": 2},
        {"cuts": 1, "answers": 1},
        {"deaths": 1, "restarts": 1, "window": sized(1, 2)},
        {"zombies": 1},
        {"cuts": sized(0, 1), "losses": 1},
        {"copies": 1},
        # L10: a remote node that dies takes back acknowledgements that are proven, for a minute.
        {"returns": 1, "window": 1},
    ],
    ids=" and ".join,
)
def test_nothing_is_lost_or_doubled(keys, faults):
    """L1, L5-L7, L9-L11, L27: with ids no message is doubled; without, at most the counted ones."""
    explored(EDGES[keys], **faults).is_sound(100)


def test_a_link_that_stores_loses_nothing_by_itself():
    """L9: with `ack=stored` no message is lost, except with the local broker's disk."""
    explored(Edge("id", STORED), cuts=1, answers=1).is_sound(100)
    explored(Edge("id", STORED), losses=1).has("is lost")


@pytest.mark.parametrize("keys", ["id", "content"])
@pytest.mark.parametrize(
    ("bodies", "faults"),
    [
        ("aa", {"cuts": 1}),
        ("a", {"cuts": 1, "answers": 1}),
        ("a", {"deaths": 1, "restarts": 1}),
        ("a", {"zombies": 1}),
        ("a", {"copies": 1}),
        ("a", {"returns": 1, "window": 1}),
    ],
)
def test_what_is_rejected_is_rejected_there(keys, bodies, faults):
    """L10, L11, L28: a forwarded rejection is neither accepted nor lost, whatever fails."""
    explored(Edge(keys, there=True), bodies, **faults).is_sound(20)


def test_without_keys_a_cut_doubles():
    """L2: a cut without keys loses no message."""
    explored(Edge("none"), cuts=1, window=sized(1, 2)).is_sound(20)


class MarksEverything(Edge):
    """L6: a remote broker that marks every delivery as redelivered, as one that lost its state may.

    Only the remote broker sets the mark, and no promise rests on it: an entry that never had a
    permit has a delivery that comes again, so whichever of two equal messages takes it, the other
    one is stored or takes another entry.
    """

    def redelivered(self, rows):
        return BitMap(range(len(rows)))


@pytest.mark.parametrize("cuts", [1, 2])
def test_nothing_rests_on_the_mark_of_redelivery(cuts):
    """L6, L7: with all deliveries marked and equal, none is lost, and no more are doubled."""
    explored(MarksEverything("content"), cuts=cuts, window=sized(1, 2)).is_sound(100)


SWITCHED_OFF = {
    "a frame is stored again": (rules.StoresAgain("id"), {"answers": 1}, "is doubled"),
    "one for many": (rules.OneForMany("content"), {"cuts": 1}, "does not go on"),
    "all entries match": (Edge("content", drop=True), {"cuts": 1}, "is lost"),
    "no mark": (rules.AckedWithoutMark("content"), {"cuts": 1}, "is lost"),
    "forgotten at send": (rules.ForgottenAtSend("id"), {"cuts": 1}, "is doubled"),
    "no grace": (rules.NoGrace("id"), {"returns": 1, "window": 1}, "is doubled"),
    "time is enough": (rules.TimeIsEnough("id"), {"cuts": 1}, "is doubled"),
    "held until the end": (rules.HeldUntilTheEnd("id"), {"cuts": 1}, "does not go on"),
    "permits have no outcome": (rules.NoOutcome("id", there=True), {}, "is accepted there"),
    "outcomes end at a cut": (
        rules.OutcomesEndAtACut("id", there=True),
        {"cuts": 1},
        "is accepted there",
    ),
    "copies are trusted": (rules.CopiesAreTrusted("content"), {"copies": 1}, "is lost"),
}


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_without_a_rule_a_trace_is_found(rule):
    """L5, L6, L7, L10, L11, L27, L28: without a rule the explorer finds a trace to a flaw."""
    edge, faults, wrong = SWITCHED_OFF[rule]
    explored(edge, **faults).has(wrong)
