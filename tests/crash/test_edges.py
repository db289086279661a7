"""The short form of the ledger of several edges; the long one is run by hand."""

import pytest

from tests.crash.edges import WRONG, Run

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(1800)]

KILLS = 4


def test_every_message_arrives_once_from_three_edges(tmp_path):
    """S12, K14: edges and driver are killed, and an edge is emptied and removed."""
    run = Run(tmp_path, seed=3)
    figures = run.go(seconds=2, pause_s=1, kills=KILLS, rounds=2)
    print(figures, dict(run.kills))
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["kills"] >= KILLS
