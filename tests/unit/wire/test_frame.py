"""Frames are ordinary protobuf: generated classes read and write the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.errors import MalformedBlockError
from ackq.v1 import consuming_pb2, messages_pb2, sessions_pb2
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame

PAIRS = [
    (pb.PublishRequest, pb.PublishHeader(lowest_unanswered=7)),
    (pb.PublishResponse, pb.PublishAnswer(confirm=pb.PublishConfirm(last_number=3))),
    (pb.StageRequest, pb.StageHeader(data=pb.StageData(rows=3))),
    (sessions_pb2.FetchResponse, messages_pb2.DeliveryRuns(first_tag=[1, 300], rows=[2, 5])),
    (consuming_pb2.ConsumeResponse, consuming_pb2.ConsumeHeader(heartbeat={})),
]


@pytest.mark.parametrize(("message", "header"), PAIRS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("size", [0, 1, 127, 128, 1 << 20])
def test_generated_classes_and_we_read_each_other(message, header, size):
    """K7: bulk bytes bypass protobuf classes, and any protobuf implementation still reads them."""
    block = b"\xff" * size
    parsed = message.FromString(frame.serializer(frame.Frame(header, block)))
    assert (parsed.header, parsed.block) == (header, block)
    read = frame.deserializer(type(header))(message(header=header, block=block).SerializeToString())
    assert (read.header, bytes(read.block)) == (header, block)


def test_block_message_has_the_same_shape():
    """A block on disk is a protobuf `Block` message too."""
    header = messages_pb2.BlockHeader(columns=2, rows=1)
    parsed = messages_pb2.Block.FromString(frame.encode(header.SerializeToString(), b"ab", b"cd"))
    assert (parsed.header, parsed.arrow) == (header, b"abcd")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    """The reader fails with MalformedBlockError only, on any input."""
    try:
        header, block = frame.split(data)
    except MalformedBlockError:
        return
    assert len(header) + len(block) <= len(data)


def test_unknown_fields_are_skipped():
    """Fields that a newer peer adds, of every wire type, are skipped."""
    extra = bytes([0x10, 0x96, 0x01]) + bytes([0x19]) + bytes(8) + bytes([0x25]) + bytes(4)
    header, block = frame.split(extra + frame.encode(b"h", b"b") + bytes([0x12, 0x01, 0x00]))
    assert (bytes(header), bytes(block)) == (b"h", b"b")
