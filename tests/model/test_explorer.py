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


@pytest.mark.parametrize(
    ("messages", "faults"),
    [
        (2, {"crashes": sized(2, 3), "deliveries": 0, "deletions": 0}),
        (2, {"crashes": 2, "deliveries": 1, "deletions": 0}),
        (2, {"crashes": 1, "deliveries": 1, "deletions": 1}),
    ],
    ids=["crashes", "another consumer", "a deleted checkpoint"],
)
def test_nothing_is_lost_or_doubled(messages, faults):
    """S1-S4, S9, K1-K3: no world loses a row, doubles one, or reads another one on a replay."""
    found = explore(Spark(BROKER, **faults), messages)
    assert not found.wrong, str(found)
    assert found.worlds > 5_000


@pytest.mark.parametrize(
    ("messages", "faults"),
    [
        (2, {"crashes": sized(1, 2), "deliveries": 0, "deletions": 0, "operations": 0}),
        (sized(1, 2), {"crashes": 1, "deliveries": 0, "deletions": 0, "operations": 1}),
    ],
    ids=["outcomes", "an operator"],
)
def test_settlement_neither_loses_nor_doubles(messages, faults):
    """S6, S8, K8: rows that a query settles end once, and replays before and after read them."""
    found = explore(Settling(BROKER, **faults), messages)
    assert not found.wrong, str(found)
    assert found.worlds > 1_500


@pytest.mark.parametrize("skips_unread", [False, True])
def test_a_batch_id_never_stands_for_another_lease(skips_unread):
    """S11, S9: a checkpoint loses files and its session is released: no row is skipped."""
    faults = {"crashes": 1, "deliveries": 1, "deletions": 0}
    found = explore(Once(BROKER, skips_unread=skips_unread, **faults), messages=2)
    assert not found.wrong, str(found)
    assert found.worlds > 1_000


@pytest.mark.parametrize("skips_unread", [False, True])
@pytest.mark.parametrize(
    ("spark", "messages", "faults"),
    [
        (Guarded, 2, {"deliveries": 0, "empties": 2}),
        (Once, 1, {"deliveries": 1, "empties": 1}),
    ],
)
def test_a_batch_without_rows_is_a_batch(spark, messages, faults, skips_unread):
    """S11, S9, K5: the sink has the empty batch and its files are lost: no row gets its id."""
    spark = spark(BROKER, skips_unread=skips_unread, crashes=1, deletions=0, **faults)
    found = explore(spark, messages)
    assert not found.wrong, str(found)
    assert found.worlds > 5_000


@pytest.mark.parametrize(
    ("spark", "messages", "deliveries"),
    [(Guarded, 2, 0), (Once, 1, 1)],
    ids=["a watermark", "once"],
)
def test_a_batch_without_rows_that_is_not_known_is_a_loss(spark, messages, deliveries):
    """S11: with half of the rule off a sink skips rows that have the id of a batch it has."""
    faults = {"crashes": 1, "deliveries": deliveries, "deletions": 0, "empties": 1}
    found = explore(spark(rules.RowsAlone(), **faults), messages)
    print(found)
    assert "is lost" in found.wrong


def test_a_batch_without_rows_that_nobody_reported():
    """S11: the limit that the rule names: the driver dies before its report, and files are lost."""
    faults = {"crashes": 2, "deliveries": 0, "deletions": 0, "empties": 1}
    found = explore(Guarded(BROKER, **faults), 1)
    assert "is lost" in found.wrong
    silent = [event for event in found.trace if "falls silent" in event or "dies" in event]
    assert len(silent) == 2, str(found)


@pytest.mark.parametrize(
    "faults",
    [
        {"crashes": sized(1, 2), "deliveries": 0, "deletions": 0, "empties": 1},
        {"crashes": 1, "deliveries": 1, "deletions": 0},
        {"crashes": 1, "deliveries": 0, "deletions": 1},
    ],
    ids=["crashes", "another consumer", "a deleted checkpoint"],
)
def test_an_older_spark_loses_and_doubles_nothing(faults):
    """K13: the source keeps its query's place where Spark does not name it."""
    found = explore(Older(BROKER, **faults), 2)
    assert not found.wrong, str(found)
    assert found.worlds > 800


def test_an_older_spark_says_at_a_start_where_the_query_stands():
    """K13: a source that does not keep what `partitions` named opens again, and is refused."""
    found = explore(NothingSeen(BROKER, crashes=1, deliveries=0, deletions=0), 2)
    print(found)
    assert "the query can not go on" in found.wrong


def loss(broker, world, names):
    """Reports a message that is lost or doubled, whatever rows a batch has read."""
    return flaw(broker, world._replace(read=()), names)


@pytest.mark.parametrize(
    ("skips_unread", "judge", "told"),
    [(False, flaw, "with other rows"), (False, loss, "is lost"), (True, loss, "is lost")],
)
def test_a_batch_id_that_stands_for_another_lease_is_a_loss(skips_unread, judge, told):
    """S11: with the rule off a sink skips rows that it lacks, and the source accepts them."""
    faults = {"crashes": 1, "deliveries": 1, "deletions": 0}
    spark = Once(rules.AnyLease(), skips_unread=skips_unread, **faults)
    found = explore(spark, messages=2, judge=judge)
    print(found)
    assert told in found.wrong


def with_an_operator(broker, **faults):
    """A query that settles rows, and an operator who settles one tag of its lease."""
    return Settling(broker, operations=1, **faults)


SWITCHED_OFF = {
    "accept before the proof": (rules.AcceptsWhatIsPlanned, Broker, (0, 0, 0), "is lost"),
    "no kept lease": (Spark, rules.NoKeptLease, (1, 0, 0), "the query can not go on"),
    "a lease made anew": (Spark, rules.LeaseMadeAnew, (1, 1, 0), "with other rows"),
    "what was forgotten is refused": (
        Spark,
        rules.ForgottenIsRefused,
        (1, 0, 0),
        "the query can not go on",
    ),
    "what is unknown opens anew": (Spark, rules.UnknownOpensAnew, (2, 1, 0), "with other rows"),
    "no successor": (Spark, rules.NoSuccessor, (2, 0, 0), "the query can not go on"),
    "an opening takes over": (Spark, rules.OpeningTakesOver, (0, 1, 1), "is doubled"),
    "no fencing": (with_an_operator, rules.NoFencing, (0, 0, 0), "in one run"),
    "outcomes at once": (Settling, rules.OutcomesAtOnce, (1, 0, 0), "with other rows"),
    "a sink without batch id": (rules.SinkWithoutBatchId, Broker, (1, 0, 0), "is doubled"),
}


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_without_a_rule_a_trace_is_found(rule):
    """S3, S4, S6, S9, K1-K3: without a rule the explorer finds a shortest trace to a flaw."""
    spark, broker, faults, flaw = SWITCHED_OFF[rule]
    crashes, deliveries, deletions = faults
    faults = {"crashes": crashes, "deliveries": deliveries, "deletions": deletions}
    found = explore(spark(broker(), **faults), messages=2)
    print(f"{rule}: {found}")
    assert flaw in found.wrong
    assert found.trace
