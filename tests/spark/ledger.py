"""The ledger of a test: which message ids were published, and which arrived how often.

Invariant: both sides are counted by a client that is not Spark.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from ackq.client import Admin, Publisher
from tests.eventually import SOON_S

# The columns that a query carries from queue to queue.
CARRIED = "body binary, message_id string"
TIMED = f"{CARRIED}, published_at timestamp"
# Ten bodies, for tests in which the messages have no names.
N = [b"%d" % number for number in range(10)]


def ids(first: int, last: int, prefix: str = "m") -> list[str]:
    """Message ids first..last."""
    return [f"{prefix}-{number:04d}" for number in range(first, last + 1)]


def publish(
    endpoint: str, queue: str, names: list[str], published_at: datetime | None = None
) -> None:
    """Publishes a message per id, all confirmed."""
    with Publisher(endpoint, routing_key=queue, mandatory=True) as publisher:
        sent = [
            publisher.publish(f"body of {name}", message_id=name, published_at=published_at)
            for name in names
        ]
        for confirmation in sent:
            confirmation.result(SOON_S)


def arrived(admin: Admin, queue: str) -> list[str]:
    """The message ids in a queue, in order."""
    if not admin.plan_browse(queue):
        return []
    batches = admin.browse(queue, columns=["message_id"])
    return [name for batch in batches for name in batch.column(0).to_pylist()]


def counted(admin: Admin, queue: str) -> Counter[str]:
    """How often each message id is in a queue."""
    return Counter(arrived(admin, queue))


def once(*names: list[str]) -> Counter[str]:
    """Each of these message ids once: the content of a queue when nothing is lost or doubled."""
    return Counter(name for some in names for name in some)
