"""Parsing requests: one that would grow too large in memory is refused before it is parsed."""

import pytest

from ackq import limits
from ackq.errors import LimitError, MalformedBlockError
from ackq.v1 import (
    admin_pb2,
    consuming_pb2,
    messages_pb2,
    publishing_pb2,
    sessions_pb2,
)
from ackq.wire import frame
from ackq_broker.service.transport.requests import RequestParser, count_fields
from tests.fakes.blocks import encoded

# Number of fields whose bytes exceed what is parsed in one step.
LARGE = 50_000


@pytest.fixture
def few(monkeypatch):
    """Lowers the bound on fields, and returns it."""
    monkeypatch.setattr(limits, "MAX_REQUEST_FIELDS", LARGE // 5)
    return limits.MAX_REQUEST_FIELDS


def parser(message):
    return RequestParser(message.DESCRIPTOR)


def field(number, content):
    """A length-delimited field."""
    return frame.varint(number << 3 | 2) + frame.varint(len(content)) + content


def header_of_messages(content):
    """A publish frame with a header of single messages."""
    return frame.encode(field(3, content))


async def test_a_frame_of_many_messages_is_parsed():
    """P2: a client without Arrow may publish as many single messages as a large frame holds."""
    message = messages_pb2.Message(body=b"x" * 50, routing_key="q", headers={"k": "v"})
    messages = [message] * limits.FRAME_TARGET_ROWS
    header = publishing_pb2.PublishHeader(data=publishing_pb2.PublishData(messages=messages))
    found = await parser(publishing_pb2.PublishRequest).parse(
        frame.serializer(frame.Frame(header, b""))
    )
    assert found.header == header


async def test_empty_messages_are_counted_before_they_are_made(few):
    """I6: empty messages, 2 bytes on the wire and 150 in memory, are counted before parsing."""
    with pytest.raises(LimitError, match=f"more than {few} fields"):
        await parser(publishing_pb2.PublishRequest).parse(header_of_messages(b"\x32\x00" * LARGE))


@pytest.mark.usefixtures("few")
async def test_headers_of_one_message_are_counted():
    """I6: entries of a message's headers count as fields, at any depth."""
    entries = b"".join(field(7, field(1, b"%d" % key)) for key in range(LARGE // 4))
    with pytest.raises(LimitError):
        await parser(publishing_pb2.PublishRequest).parse(header_of_messages(field(6, entries)))


@pytest.mark.usefixtures("few")
async def test_unknown_fields_are_counted():
    """I6: unknown fields count, as they cost time and protobuf keeps them."""
    with pytest.raises(LimitError):
        await parser(sessions_pb2.StageOutcomesRequest).parse(b"\x78\x00" * LARGE)


async def test_a_request_that_is_too_large():
    """I6: an oversized request is refused, as small numbers take 8 times their bytes in memory."""
    request = sessions_pb2.SettleSessionRequest(first_tag=[1] * (limits.MAX_REQUEST_BYTES + 1))
    with pytest.raises(LimitError, match="over the limit of 4194304"):
        await parser(sessions_pb2.SettleSessionRequest).parse(request.SerializeToString())


async def test_a_commit_of_a_hundred_thousand_tasks():
    """K3: a commit of 100,000 stages is within the request bounds."""
    stage = publishing_pb2.StageReference(stage_id=b"x" * 16, rows=1 << 20, payload_bytes=1 << 40)
    request = publishing_pb2.CommitBatchRequest(writer="w", stages=[stage] * 100_000)
    found = await parser(publishing_pb2.CommitBatchRequest).parse(request.SerializeToString())
    assert found == request


async def test_the_largest_stage_of_outcomes():
    """S6: the largest stage of outcomes is parsed: 65,536 groups, or a million tags."""
    group = sessions_pb2.OutcomeGroup(outcome=3, reason="r", delay_ms=5, tags=[1])
    request = sessions_pb2.StageOutcomesRequest(groups=[group] * limits.MAX_OUTCOME_STAGE_GROUPS)
    assert await parser(type(request)).parse(request.SerializeToString()) == request
    many = sessions_pb2.OutcomeGroup(outcome=1, tags=range(1_000_000))
    request = sessions_pb2.StageOutcomesRequest(groups=[many])
    assert await parser(type(request)).parse(request.SerializeToString()) == request


@pytest.mark.parametrize("cut", [1, 100, 70_000])
async def test_a_request_that_is_cut(cut):
    """P8: a truncated request, small or large, is refused as malformed."""
    data = admin_pb2.DeclareQueueRequest(queue="q" * 80_000).SerializeToString()
    with pytest.raises(MalformedBlockError):
        await parser(admin_pb2.DeclareQueueRequest).parse(data[:cut])


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
