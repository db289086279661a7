"""What the service says of a batch that was committed before."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.service.publishing.service import PublishingService


@pytest.mark.parametrize(
    ("repeated", "rows", "level"), [(False, 3, None), (True, 3, "INFO"), (True, 2, "WARNING")]
)
def test_a_repetition_is_logged(caplog, repeated, rows, level):
    """K3: as a warning when it has another number of rows than the batch."""

    async def call(_command):
        return commands.CommittedBatch(rows, repeated)

    caplog.set_level(logging.INFO)
    stages = [pb.StageReference(stage_id=bytes(16), rows=n) for n in (1, 2)]
    request = pb.CommitBatchRequest(writer="w", batch_id=5, stages=stages)
    service = PublishingService(SimpleNamespace(call=call))
    answer = asyncio.run(service.commit_batch(request))
    assert (answer.rows, answer.repeated) == (rows, repeated)
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
    if level:
        assert f"'w': batch 5 was committed before, with {rows} rows; the 3" in caplog.text
