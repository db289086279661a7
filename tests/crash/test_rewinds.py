"""The short form of the ledger of rewinds; the long one is run by hand."""

import pytest

from tests.crash.rewinds import WRONG, Run

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(900)]


def test_each_message_arrives_once_more_for_each_rewind(tmp_path):
    """S13, S14, K15: to a table and a queue, while broker, driver and tasks are killed."""
    run = Run(tmp_path, seed=3)
    figures = run.go(seconds=60, every_s=10, pause_s=2)
    print(figures, dict(run.kills), dict(run.rewinds))
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["rewound"] > 0
