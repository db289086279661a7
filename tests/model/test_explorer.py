"""A session under every interleaving of crashes: nothing is lost or doubled, rule by rule."""

import pytest

from tests.model import rules
from tests.model.broker import Broker
from tests.model.explorer import explore, flaw
from tests.model.older import NothingSeen, Older
from tests.model.once import Guarded, Once
from tests.model.settling import Settling
from tests.model.world import Spark
from tests.sizes import sized

# Explorations share its cache of calls.
BROKER = Broker()


def faults(crashes, deliveries=0, deletions=0, **more):
    return {"crashes": crashes, "deliveries": deliveries, "deletions": deletions, **more}


# The model, its messages and faults, and less worlds than it has.
SOUND = {
    # S1-S4, S9, K1-K3: no world loses a row, doubles one, or reads another one on a replay.
    "crashes": (Spark, 2, faults(sized(2, 3)), 5_000),
    "another consumer": (Spark, 2, faults(2, 1), 5_000),
    "a deleted checkpoint": (Spark, 2, faults(1, 1, 1), 5_000),
    # S6, S8, K8: rows that a query settles end once, and replays before and after read them.
    "outcomes": (Settling, 2, faults(sized(1, 2)), 1_500),
    "an operator": (Settling, sized(1, 2), faults(1, operations=1), 1_500),
    # S11, S9: a checkpoint loses files and its session is released: no row is skipped.
    "once": (Once, 2, faults(1, 1, skips_unread=False), 1_000),
    "once, skipping": (Once, 2, faults(1, 1, skips_unread=True), 1_000),
    # S11, S9, K5: the sink has an empty batch and its files are lost: no row gets its id.
    "empty": (Guarded, 2, faults(1, empties=2, skips_unread=False), 5_000),
    "empty, skipping": (Guarded, 2, faults(1, empties=2, skips_unread=True), 5_000),
    "empty, once": (Once, 1, faults(1, 1, empties=1, skips_unread=False), 5_000),
    "empty, once, skipping": (Once, 1, faults(1, 1, empties=1, skips_unread=True), 5_000),
    # K13: an older source keeps its query's place where Spark does not name it.
    "older: crashes": (Older, 2, faults(sized(1, 2), empties=1), 800),
    "older: another consumer": (Older, 2, faults(1, 1), 800),
    "older: a deleted checkpoint": (Older, 2, faults(1, 0, 1), 800),
}


@pytest.mark.parametrize("which", SOUND)
def test_nothing_is_lost_or_doubled(which):
    """S1-S4, S6, S8, S9, S11, K1-K3, K5, K8, K13: no world loses, doubles or skips a row."""
    spark, messages, limits, worlds = SOUND[which]
    explore(spark(BROKER, **limits), messages).is_sound(worlds)


def test_a_batch_without_rows_that_nobody_reported():
    """S11: the limit that the rule names: the driver dies before its report, and files are lost."""
    found = explore(Guarded(BROKER, **faults(2, empties=1)), 1)
    found.has("is lost")
    silent = [event for event in found.trace if "falls silent" in event or "dies" in event]
    assert len(silent) == 2, str(found)


def loss(broker, world, names):
    """Reports a message that is lost or doubled, whatever rows a batch has read."""
    return flaw(broker, world._replace(read=()), names)


STUCK = "the query can not go on"
# The model, the broker, its messages and faults, and the flaw, of single messages or of any kind.
SWITCHED_OFF = {
    "accept before the proof": (rules.AcceptsWhatIsPlanned, Broker, 2, faults(0), "is lost"),
    "no kept lease": (Spark, rules.NoKeptLease, 2, faults(1), STUCK),
    "a new lease at the floor": (Spark, rules.LeaseMadeAnew, 2, faults(1, 1), "with other rows"),
    "what was forgotten is refused": (Spark, rules.ForgottenIsRefused, 2, faults(1), STUCK),
    "any incarnation opens": (Spark, rules.UnknownOpensAnew, 2, faults(2, 1), "with other rows"),
    "no successor": (Spark, rules.NoSuccessor, 2, faults(2), STUCK),
    "an opening takes over": (Spark, rules.OpeningTakesOver, 2, faults(0, 1, 1), "is doubled"),
    "no fencing": (Settling, rules.NoFencing, 2, faults(0, operations=1), "in one run"),
    "outcomes at once": (Settling, rules.OutcomesAtOnce, 2, faults(1), "with other rows"),
    "a sink without batch id": (rules.SinkWithoutBatchId, Broker, 2, faults(1), "is doubled"),
    "an empty batch is unknown": (Guarded, rules.RowsAlone, 2, faults(1, empties=1), "is lost"),
    "an unknown empty batch, once": (Once, rules.RowsAlone, 1, faults(1, 1, empties=1), "is lost"),
    "an older source forgets": (NothingSeen, Broker, 2, faults(1), STUCK),
    "any lease": (Once, rules.AnyLease, 2, faults(1, 1), "with other rows"),
    "any lease, a loss": (Once, rules.AnyLease, 2, faults(1, 1), "is lost"),
    "any lease, skipping": (Once, rules.AnyLease, 2, faults(1, 1, skips_unread=True), "is lost"),
}


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_without_a_rule_a_trace_is_found(rule):
    """S3, S4, S6, S9, S11, K1-K3, K13: without a rule a shortest trace to a flaw is found."""
    spark, broker, messages, limits, told = SWITCHED_OFF[rule]
    judge = loss if rule.startswith("any lease,") else flaw
    explore(spark(broker(), **limits), messages, judge=judge).has(told)
