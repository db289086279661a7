"""Advance and attach (S2, S4): the backlog, and tags that are refused."""

from functools import partial

import pytest

from ackq.errors import CheckpointMismatchError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import Harness, Reader


def test_the_backlog_is_that_after_the_call(harness: Harness, reader: Reader) -> None:
    """S4: it has the ready, unacked and oldest messages after accept and lease."""
    published_us = harness.now_us
    harness.publish_to("q", 2)
    published_us = harness.now_us
    reader.advance(0, max_messages=10)
    reply = reader.advance(10, max_messages=1)
    assert reply.backlog == c.Backlog(1, 1, published_us, 0)
    (queue,) = views.list_queues(harness.core.state, "q")
    assert (queue.ready, queue.unacked) == (1, 1)
    assert views.ready_total(harness.core.state, "s") == 1
    assert views.ready_total(harness.core.state, "unknown") == 0


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (0, 2, "older than the accepted batches"),
        (3, 4, "older than the accepted batches"),
        (2, 8, "older than the accepted batches"),
        (4, 9, "broker is older than the checkpoint"),
        (4, 7, r"lease is \(4, 8\]"),
        (6, 8, r"lease is \(4, 8\]"),
        (0, 0, "older than the accepted batches"),
        (9, 0, "broker is older than the checkpoint"),
        (6, 0, r"lease is \(4, 8\]"),
    ],
)
def test_tags_of_no_batch_are_refused(reader: Reader, start: int, end: int, message: str) -> None:
    """S2, S4: a replay, or a call of `advance` for `end` 0; the refusal has tags and cause."""
    reader.advance(0, max_messages=2)
    reader.advance(2, max_messages=2)
    reader.advance(4, max_messages=4)
    replay = partial(reader.attach, start, end)
    with pytest.raises(CheckpointMismatchError, match=message) as caught:
        replay() if end else reader.advance(start, takeover=True)
    told = caught.value.fields
    assert (told["start_tag"], told["floor_tag"], told["end_tag"]) == (
        str(start),
        "4",
        str(end or 8),
    )
