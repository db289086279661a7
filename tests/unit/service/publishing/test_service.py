"""The service's log about a batch that was committed before."""

import asyncio
import logging
from types import SimpleNamespace
from unittest.mock import AsyncMock

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.service.publishing.service import PublishingService


def test_a_repetition_is_logged(caplog):
    """K3: a repeated batch is logged, as a warning if its row count or target differs."""
    caplog.set_level(logging.INFO)
    stages = [pb.StageReference(stage_id=bytes(16), rows=n) for n in (1, 2)]
    request = pb.CommitBatchRequest(writer="w", batch_id=5, stages=stages, target="one")
    for repeated, rows, target, expected in (
        (False, 3, "one", []),
        (True, 3, "one", [("INFO", "with 3 rows for one;")]),
        (True, 3, "", [("INFO", "with 3 rows;")]),
        (True, 2, "one", [("WARNING", "with 2 rows for one;")]),
        (True, 3, "two", [("WARNING", "with 3 rows for two;")]),
    ):
        call = AsyncMock(return_value=commands.CommittedBatch(rows, repeated, target))
        answer = asyncio.run(PublishingService(SimpleNamespace(call=call)).commit_batch(request))
        assert (answer.rows, answer.repeated, answer.target) == (rows, repeated, target)
        before, after = "'w': batch 5 was committed before, ", " the 3 rows that"
        assert [record.levelname for record in caplog.records] == [level for level, _ in expected]
        assert all(f"{before}{told}{after}" in caplog.text for _, told in expected)
        caplog.clear()
