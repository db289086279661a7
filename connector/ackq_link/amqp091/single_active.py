"""What a queue with a single active consumer means to a link. Rule L17."""

from __future__ import annotations

from typing import Final

# Versions whose quorum queues deliver nothing any more once each consumer has met the consumer
# timeout (rabbitmq-server#17317); before 4.3 a quorum queue had none of its own.
_STOPS_FROM: Final = (4, 3, 0)
_STOPS_TO: Final = (4, 3, 5)
# Whatever the version.
NOTE: Final = (
    "the queue there has a single active consumer: while the link is that one, another consumer or"
    " a second link waits and gets nothing, and while another is, the link does"
)


def warning(version: tuple[int, ...], kind: str, timeout_s: float | None) -> str:
    """What is to be done before the queue stops for ever; empty: nothing.

    Args:
        version: RabbitMQ's; empty: not known.
        kind: Of the queue.
        timeout_s: The consumer timeout of the queue, where one is said or learnt.
    """
    stops = _STOPS_FROM <= version[:3] <= _STOPS_TO
    if not stops or kind not in {"quorum", ""} or timeout_s is not None:
        return ""
    return (
        f"RabbitMQ {'.'.join(map(str, version))} stops a quorum queue with a single active consumer"
        " for ever when its consumers meet the consumer timeout (rabbitmq-server#17317). Give the"
        " queue a consumer-timeout, by policy or argument, that is longer than anything is held,"
        " and name it to the link (consumer-timeout); or use 4.3.6 or later"
    )
