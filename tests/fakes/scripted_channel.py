"""Frames of a scripted broker on a channel."""

import pyarrow as pa

from ackq.v1 import consuming_pb2 as pb
from ackq.v1 import messages_pb2
from ackq.wire import block, columns
from tests.fakes import scripted_broker
from tests.fakes.scripted_broker import detail

ALL = (pb.OUTCOME_ACCEPTED, pb.OUTCOME_FAILED, pb.OUTCOME_REJECTED, pb.OUTCOME_RELEASED)


def opened(*, resumed=False, outcomes=ALL, heartbeat_ms=0, settle_runs=False, instance=b""):
    return frame(
        opened=pb.ChannelOpened(
            outcomes=outcomes,
            heartbeat_ms=heartbeat_ms,
            resumed=resumed,
            settle_runs=settle_runs,
            instance=instance,
        )
    )


def answering(*frames, end):
    """A script that opens, answers a first request with the frames, and ends with the error."""
    return scripted_broker.answering(*frames, opening=opened(), end=end)


def frame(content=b"", **kind):
    return pb.ConsumeResponse(header=pb.ConsumeHeader(**kind), block=content)


def runs_of(*runs, counts=None):
    """Runs (first tag, rows), each delivered for the first time unless `counts` differ."""
    return messages_pb2.DeliveryRuns(
        first_tag=[first for first, _ in runs],
        rows=[rows for _, rows in runs],
        delivery_count=counts or [1] * len(runs),
        queue_index=[0] * len(runs),
        queues=["orders"],
    )


def block_of(*bodies):
    schema = columns.stored_schema(columns.bits(["body"]))
    return block.encode(pa.record_batch([pa.array(bodies, pa.binary())], schema=schema))


def delivery(first_tag, *bodies, consumer="1", get_number=0):
    """A frame of messages with consecutive tags."""
    return frame(
        block_of(*bodies),
        delivery=pb.Delivery(
            consumer="" if get_number else consumer,
            runs=runs_of((first_tag, len(bodies))),
            get_number=get_number,
        ),
    )


def numbered(first, last, **fields):
    """A frame of messages whose bodies are their tags."""
    return delivery(first, *(b"%d" % tag for tag in range(first, last + 1)), **fields)


def tags_of(made):
    """The tags of a frame."""
    runs = made.header.delivery.runs
    return {
        tag
        for first, rows in zip(runs.first_tag, runs.rows, strict=True)
        for tag in range(first, first + rows)
    }


def settled(request, messages=1):
    """The answer to a settlement of `messages` messages."""
    return frame(settled=pb.Settled(number=request.settle.number, settled=messages))


def get_empty(number):
    return frame(get_empty=pb.GetEmpty(number=number))


def cancelled(consumer, error):
    return frame(cancelled=pb.ConsumerCancelled(consumer=consumer, reason=detail(error)))


def kinds(requests):
    """The kinds of the requests that a stream received, heartbeats left out."""
    names = [each.WhichOneof("kind") for each in requests]
    return [each for each in names if each != "heartbeat"]
