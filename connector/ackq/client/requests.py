"""Serialises what a publisher puts on its stream; every frame carries the lowest unanswered number.

The broker forgets accepted numbers below it (P10).
"""

from __future__ import annotations

from ackq.client.flow import Probe, Send
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame


def opening(
    publisher_id: bytes,
    *,
    resume: bool,
    lowest_unanswered: int,
    window_messages: int,
    label: str,
) -> bytes:
    """The first frame of a stream."""
    header = pb.PublishHeader(
        lowest_unanswered=lowest_unanswered,
        open=pb.PublishOpen(
            publisher_id=publisher_id,
            mode=pb.PUBLISH_MODE_CONFIRM,
            resume=resume,
            window_messages=window_messages,
            label=label,
        ),
    )
    return frame.encode(header.SerializeToString())


def data(send: Send) -> bytes:
    """A frame of publishes; empty, and not to be sent, when they were all answered meanwhile."""
    part, destination = send.part, send.part.frame.destination
    content = part.frame.block(part.numbers)
    if not content:
        return b""
    header = pb.PublishHeader(
        lowest_unanswered=send.lowest_unanswered,
        data=pb.PublishData(
            first_number=part.numbers.first,
            rows=part.numbers.last - part.numbers.first + 1,
            exchange=destination.exchange,
            mandatory=destination.mandatory,
            ack_immediately=destination.ack_immediately,
        ),
    )
    return frame.encode(header.SerializeToString(), content)


def probe(asked: Probe) -> bytes:
    """A probe."""
    header = pb.PublishHeader(
        lowest_unanswered=asked.lowest_unanswered,
        probe=pb.PublishProbe(first_number=asked.numbers.first, last_number=asked.numbers.last),
    )
    return frame.encode(header.SerializeToString())
