"""`ackq trace` against real brokers (Q9)."""

import pyarrow as pa
import pytest

from ackq.cli.diagnosis.trace import _search
from ackq.client import Channel, Publisher
from ackq.errors import PermissionDeniedError
from tests.eventually import SOON_S
from tests.wire.cli.conftest import read


@pytest.fixture
def queue(admin, request):
    """A queue of the test's own, with a dead-letter queue."""
    name = request.node.name
    admin.declare_queue(f"{name}-dead")
    admin.declare_queue(name, dead_letter_queue=f"{name}-dead")
    return name


def publish(endpoint, queue, *ids):
    with Publisher(endpoint) as publisher:
        sent = [publisher.publish(b"x", routing_key=queue, message_id=each) for each in ids]
        for each in sent:
            each.result(timeout=SOON_S)


def test_a_message_on_its_way(run, endpoint, open_lease, queue):
    """Q9: `trace` finds a message ready, unacked or dead-lettered, and all with one id."""
    publish(endpoint, queue, "a", "b", "b", "leased")
    (waiting,) = read(run("trace", "a", "--json"))["found"]
    assert (waiting["queue"], waiting["position"], waiting["state"]) == (queue, 1, "ready")
    assert [each["position"] for each in read(run("trace", "b", "--json"))["found"]] == [2, 3]
    with Channel(endpoint, label="billing:1") as channel:
        consumer = channel.consume(queue, mode="client", prefetch=3, outcomes=["rejected"])
        messages = [consumer.receive(timeout_s=SOON_S) for _ in range(3)]
        (held,) = read(run("trace", "a", "--json"))["found"]
        assert (held["channel"], held["delivery_tag"]) == ("billing:1", 1)
        assert "unacked at the client 'billing:1'" in run("trace", "a").stdout
        messages[0].reject("no id").result(timeout=SOON_S)
        messages[1].accept().result(timeout=SOON_S)
        messages[2].accept().result(timeout=SOON_S)
    (dead,) = read(run("trace", "a", "--json"))["found"]
    assert dead["queue"] == f"{queue}-dead"
    assert dead["dead_letter"]["reason"] == "no id"
    assert dead["dead_letter"]["queue"] == queue
    gone = run("trace", "b").stdout
    assert "No message with the id 'b' is in a queue now" in gone
    open_lease(queue)
    (leased,) = read(run("trace", "leased", "--queue", queue, "--json"))["found"]
    assert (leased["session"], leased["delivery_tag"], leased["attempts"]) == (queue, 1, 1)


def test_more_messages_than_a_slice(run, endpoint, queue):
    """Q9, I6: `trace` finds the last of many messages, and counts all it looked at."""
    ids = pa.array([f"id-{number}" for number in range(25_000)])
    with Publisher(endpoint) as publisher:
        rows = pa.record_batch(
            {"body": pa.repeat(b"x", 25_000).cast(pa.binary()), "message_id": ids}
        )
        publisher.publish_batch(rows, routing_key=queue).result(timeout=SOON_S)
    found = read(run("trace", "id-24999", "--queue", queue, "--json"))
    assert (found["looked_at"], found["found"][0]["position"]) == (25_000, 25_000)


def test_a_queue_that_is_not_there(run):
    """`trace` in a missing queue is an error."""
    assert run("trace", "m", "--queue", "nowhere").exit_code != 0


class Guarded:
    """An Admin of a user who may read queue `open` alone."""

    def __init__(self, admin, queue):
        self._admin = admin
        self._open = queue

    def browse(self, name, **options):
        if name != self._open:
            raise PermissionDeniedError(f"read on queue '{name}'")
        return self._admin.browse(name, **options)


def test_queues_that_are_closed_to_the_user(admin, endpoint, queue):
    """Q9: `trace` names queues closed to the user and searches the others, else it fails."""
    publish(endpoint, queue, "m")
    guarded = Guarded(admin, queue)
    found = _search(guarded, ("secret", queue), "m")
    assert ([hit.queue for hit in found.hits], found.closed) == ([queue], ["secret"])
    with pytest.raises(PermissionDeniedError):
        _search(guarded, ("secret",), "m")
