"""The short form of the ledger under fire; the long one is run by hand."""

import pytest

from tests.crash.ledger import WRONG, Run

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.delta, pytest.mark.timeout(1800)]

SEED = 20
# With the broker each kind is killed once: the driver last, as the next one drains. The long form
# kills every process, at random.
KINDS = ("task", "broker", "driver at")


def test_every_message_arrives_once_whoever_is_killed(tmp_path):
    """K1-K4, Q7, P4, P10, S1-S4: queue -> Spark -> queue -> Spark -> Delta, under kills."""
    run = Run(tmp_path, SEED, rate=50, master="local[2,8]", once=KINDS)
    figures = run.go(seconds=0, pause_s=1)
    print(figures, dict(run.kills))
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["messages"] == figures["table_rows"]
    assert all(any(kill.startswith(kind) for kill in run.kills) for kind in KINDS)
