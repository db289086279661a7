"""The short form of the ledger under fire; the long one is run by hand."""

import pytest

from tests.crash.ledger import WRONG, Run

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.delta, pytest.mark.timeout(1800)]

SEED = 20
KILLS = 4
# Kinds that are soon at work again; the long form kills every kind.
WEIGHTS = {"broker": 4, "task": 4, "driver at": 2}


def test_every_message_arrives_once_whoever_is_killed(tmp_path):
    """K1-K4, Q7, P4, P10, S1-S4: queue -> Spark -> queue -> Spark -> Delta, under kills."""
    run = Run(tmp_path, SEED, rate=50, master="local[4,8]", weights=WEIGHTS)
    figures = run.go(seconds=5, pause_s=3, kills=KILLS)
    print(figures, dict(run.kills))
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["messages"] == figures["table_rows"]
    assert figures["kills"] >= KILLS
