"""Parsing requests: one that would grow too large in memory is refused before it is parsed."""

import pytest

from ackq import limits
from ackq.errors import MalformedBlockError
from ackq.v1 import consuming_pb2, messages_pb2, publishing_pb2, sessions_pb2
from ackq.wire import frame
from ackq_broker.service.transport.requests import RequestParser, count_fields
from tests.fakes.blocks import encoded


def parser(message):
    return RequestParser(message.DESCRIPTOR)


MESSAGE = messages_pb2.Message(body=b"x" * 50, routing_key="q", headers={"k": "v"})
STAGE = publishing_pb2.StageReference(stage_id=b"x" * 16, rows=1 << 20, payload_bytes=1 << 40)
GROUP = sessions_pb2.OutcomeGroup(outcome=3, reason="r", delay_ms=5, tags=[1])
MANY = sessions_pb2.OutcomeGroup(outcome=1, tags=range(1_000_000))


@pytest.mark.parametrize(
    "request_",
    [
        publishing_pb2.PublishData(messages=[MESSAGE] * limits.FRAME_TARGET_ROWS),
        publishing_pb2.CommitBatchRequest(writer="w", stages=[STAGE] * 100_000),
        sessions_pb2.StageOutcomesRequest(groups=[GROUP] * limits.MAX_OUTCOME_STAGE_GROUPS),
        sessions_pb2.StageOutcomesRequest(groups=[MANY]),
    ],
    ids=["single messages", "a commit of 100,000 tasks", "65,536 groups", "a million tags"],
)
async def test_the_largest_requests_are_parsed(request_):
    """P2, K3, S6: as many single messages, stages and outcomes as a client may send."""
    if isinstance(request_, publishing_pb2.PublishData):
        header = publishing_pb2.PublishHeader(data=request_)
        sent = frame.serializer(frame.Frame(header, b""))
        found = await parser(publishing_pb2.PublishRequest).parse(sent)
        assert found.header == header
    else:
        assert await parser(type(request_)).parse(request_.SerializeToString()) == request_


def test_fields_are_counted_in_all_depths():
    """Nested fields are counted; a packed list is one field, and a block is not looked into."""
    header = publishing_pb2.PublishHeader(
        lowest_unanswered=5, data=publishing_pb2.PublishData(first_number=1, exchange="x")
    )
    count = count_fields(header.DESCRIPTOR, memoryview(header.SerializeToString()), 100)
    assert count == 4
    settle = consuming_pb2.Settle(first_tag=[1, 2, 3], rows=[1, 1, 1])
    assert count_fields(settle.DESCRIPTOR, memoryview(settle.SerializeToString()), 100) == 2
    assert count_fields(settle.DESCRIPTOR, memoryview(settle.SerializeToString()), 1) is None


async def test_a_frame_of_many_small_fields_is_refused_at_once():
    """I6: a frame with a million small fields is refused at once, not skipped for a minute."""
    with pytest.raises(MalformedBlockError, match="more than 64 fields"):
        await parser(publishing_pb2.PublishRequest).parse(b"\x10\x00" * 1_000_000)
    block = encoded(body=[b"x"])
    assert frame.split(b"\x10\x00" * 60 + frame.encode(b"", block))[1] == block
