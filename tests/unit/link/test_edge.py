"""Queues of the edge that a link may store into."""

import pytest

from ackq.errors import PreconditionFailedError
from ackq.v1 import admin_pb2
from ackq_broker.link.edge import check_target, is_bounded


def queue(**properties):
    return admin_pb2.QueueInfo(
        queue="q", properties=admin_pb2.QueueProperties(**{"durable": True, **properties})
    )


@pytest.mark.parametrize(
    ("properties", "remedy"),
    [
        ({"durable": False}, "declare it durable"),
        ({"overflow": admin_pb2.OVERFLOW_DROP_HEAD, "max_length": 5}, "reject-publish"),
        ({"message_ttl_ms": 1}, "dead-letter queue"),
    ],
)
def test_queues_that_lose_are_refused(properties, remedy):
    """L13: with the remedy; what the link has acknowledged there exists here alone."""
    with pytest.raises(PreconditionFailedError, match=remedy):
        check_target(queue(**properties))


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        ({}, False),
        ({"message_ttl_ms": 1, "dead_letter_queue": "d"}, False),
        ({"max_length": 1}, True),
        ({"max_bytes": 1}, True),
    ],
)
def test_queues_that_keep(properties, bounded):
    """L13, L20: and which of them may take a part of a batch."""
    check_target(queue(**properties))
    assert is_bounded(queue(**properties)) is bounded
