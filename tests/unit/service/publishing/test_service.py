"""The service's log about a batch that was committed before."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.service.publishing.service import PublishingService


@pytest.mark.parametrize(
    ("repeated", "rows", "target", "level"),
    [
        (False, 3, "one", None),
        (True, 3, "one", "INFO"),
        (True, 3, "", "INFO"),
        (True, 2, "one", "WARNING"),
        (True, 3, "two", "WARNING"),
    ],
)
def test_a_repetition_is_logged(caplog, repeated, rows, target, level):
    """K3: a repeated batch is logged, as a warning if its row count or target differs."""

    async def call(_command):
        return commands.CommittedBatch(rows, repeated, target)

    caplog.set_level(logging.INFO)
    stages = [pb.StageReference(stage_id=bytes(16), rows=n) for n in (1, 2)]
    request = pb.CommitBatchRequest(writer="w", batch_id=5, stages=stages, target="one")
    service = PublishingService(SimpleNamespace(call=call))
    answer = asyncio.run(service.commit_batch(request))
    assert (answer.rows, answer.repeated, answer.target) == (rows, repeated, target)
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
    if level:
        before = f"{rows} rows for {target}" if target else f"{rows} rows"
        assert f"'w': batch 5 was committed before, with {before}; the 3 rows that" in caplog.text
