"""`ackq trace` against real brokers (Q9)."""

import pyarrow as pa
import pytest

from ackq.cli.diagnosis.trace import _search
from ackq.client import Publisher
from ackq.errors import PermissionDeniedError
from tests.eventually import SOON_S
from tests.wire.cli.conftest import read


def test_more_messages_than_a_slice(run, endpoint, orders):
    """Q9, I6: `trace` finds the last of many messages, and counts all it looked at."""
    ids = pa.array([f"id-{number}" for number in range(25_000)])
    with Publisher(endpoint) as publisher:
        rows = pa.record_batch(
            {"body": pa.repeat(b"x", 25_000).cast(pa.binary()), "message_id": ids}
        )
        publisher.publish_batch(rows, routing_key=orders).result(timeout=SOON_S)
    found = read(run("trace", "id-24999", "--queue", orders, "--json"))
    assert (found["looked_at"], found["found"][0]["position"]) == (25_000, 25_000)


class Guarded:
    """An Admin of a user who may read queue `open` alone."""

    def __init__(self, admin, queue):
        self._admin = admin
        self._open = queue

    def browse(self, name, **options):
        if name != self._open:
            raise PermissionDeniedError(f"read on queue '{name}'")
        return self._admin.browse(name, **options)


def test_queues_that_are_closed_to_the_user(admin, run, orders):
    """Q9: `trace` names queues closed to the user and searches the others, else it fails."""
    run("publish", orders, "x", "--message-id", "m")
    guarded = Guarded(admin, orders)
    found = _search(guarded, ("secret", orders), "m")
    assert ([hit.queue for hit in found.hits], found.closed) == ([orders], ["secret"])
    with pytest.raises(PermissionDeniedError):
        _search(guarded, ("secret",), "m")
