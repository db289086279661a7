"""The dead letter that `ackq queue peek` shows of a message: C13."""

import pytest

from ackq.cli.dead_letters import death

DEAD = {
    "ackq-dead-queue": "orders",
    "ackq-dead-position": "7",
    "ackq-dead-cause": "rejected",
    "ackq-dead-reason": "no price",
    "ackq-dead-deliveries": "2",
    "ackq-dead-at": "2026-11-30T11:00:00.000000Z",
    "ackq-dead-first-queue": "orders",
    "ackq-dead-count": "1",
}


def test_the_headers_of_a_dead_letter_are_read():
    """C13: numbers are numbers; other headers are the publisher's."""
    headers = [("a", None), *DEAD.items(), ("ackq-dead-batch", "3")]
    assert death({"headers": headers}) == {
        "queue": "orders",
        "position": 7,
        "cause": "rejected",
        "reason": "no price",
        "deliveries": 2,
        "at": "2026-11-30T11:00:00.000000Z",
        "first_queue": "orders",
        "count": 1,
        "batch": 3,
    }


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"ackq-dead-queue": "orders"},
        {"ackq-dead-position": "first"},
        *({**DEAD, f"ackq-dead-{name}": None} for name in ("position", "at", "batch")),
        *({**DEAD, "ackq-dead-at": at} for at in ("noon", "2026-11-30T11:00:00")),
    ],
)
def test_headers_of_a_publisher_make_no_dead_letter(headers):
    """C13: a publisher may use any header, those of a dead letter included."""
    assert death({"headers": headers and list(headers.items())}) is None
