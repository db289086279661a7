"""One block with a row of each of several publishers: all are placed, or nothing is decided."""

from dataclasses import replace
from typing import Any

import pytest

from ackq_broker.core import commands as c
from ackq_broker.core import records, views
from tests.unit.core.harness import PUBLISHER, Harness

OTHERS = (b"2" * 16, b"3" * 16)
EVERY = (PUBLISHER, *OTHERS)


@pytest.fixture(name="three")
def _three(harness: Harness) -> Harness:
    """A queue, and three publishers."""
    harness.declare("q")
    for other in OTHERS:
        harness.do(c.OpenPublisher(other))
    return harness


def together(*numbers: int, queue: str = "q", **changes: Any) -> c.PublishTogether:
    """A row of 10 bytes of each publisher."""
    count = len(numbers)
    command = c.PublishTogether(
        EVERY[:count], numbers, (1,) * count, "", c.Routes((queue,)), 10 * count
    )
    return replace(command, **changes)


def is_known(harness: Harness, publisher: bytes, number: int) -> bool:
    return not views.missing(harness.core.state, publisher, number, number)


def test_each_row_is_a_publish_of_its_publisher(three: Harness) -> None:
    """P4, P10: one record and block; each number is its publisher's, after a restart as well."""
    decision = three.decide(together(5, 1, 7))
    assert decision.reply is True
    (record,) = decision.records
    assert isinstance(record, records.PublishedTogether)
    assert len(views.live_blocks(three.core.state)) == 1
    three.restart()
    for publisher, number in zip(EVERY, (5, 1, 7), strict=True):
        assert [n for n in (1, 5, 7) if is_known(three, publisher, n)] == [number]
    (queue,) = views.list_queues(three.core.state, "q")
    assert (queue.ready, queue.payload_bytes) == (3, 30)


@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": (2, 4, 1)},  # seen before
        {"lowest_unanswered": (1, 2, 1)},  # its own number is reported as answered
        {"publisher_ids": (PUBLISHER, OTHERS[0], b"unknown".ljust(16))},
        {"publisher_ids": (PUBLISHER, OTHERS[0], b"transactional".ljust(16))},
        {"exchange": "none"},
        {"routes": c.Routes(("none",))},
        {"routes": c.Routes(("memory",))},
        {"routes": c.Routes(("small",))},
    ],
)
def test_rows_that_differ_in_their_answers_decide_nothing(
    three: Harness, changes: dict[str, Any]
) -> None:
    """P3, P8, P10, P5: no row is placed, and each may be published by itself."""
    three.do(c.OpenPublisher(b"transactional".ljust(16), transactional=True))
    three.declare("memory", durable=False)
    three.declare("small", max_length=2)
    assert three.do(together(1, 4)) is True
    state = three.core.snapshot()
    command = together(2, 1, 1) if "numbers" not in changes else together(1, 1, 1)
    decision = three.decide(replace(command, **changes))
    assert decision == c.Decision(reply=False)
    assert three.core.snapshot() == state


def test_what_a_frame_calls_answered_is_forgotten_for_its_publisher(three: Harness) -> None:
    """P10: the lowest unanswered number is each publisher's own."""
    three.do(together(3, 3, 3))
    three.do(together(9, 9, 9, lowest_unanswered=(1, 9, 4)))
    numbers = [list(three.core.state.publishers[each].accepted) for each in EVERY]
    assert numbers == [[3, 9], [9], [9]]


def test_rows_count_one_by_one_in_a_queue_that_drops_its_head(three: Harness) -> None:
    """Q3: the oldest messages go, whatever publisher they are of."""
    three.declare("ring", max_length=2, overflow="drop-head")
    assert three.do(together(1, 1, 1, queue="ring")) is True
    (queue,) = views.list_queues(three.core.state, "ring")
    assert queue.ready == 2
