"""What the jobs find out about a queue of Artemis or Qpid before they begin."""

import asyncio

import pytest

from tests.optional import needs

needs("proton", "amqp1")

import tests.e2e.conftest  # noqa: E402, F401 - makes the next import possible
from kit import JobError, other_queues  # noqa: E402
from tests.wire.links.amqp1.peer import Peer  # noqa: E402
from tests.wire.links.amqp1.servers import PASSWORD  # noqa: E402
from tests.wire.links.managed.node import password_file  # noqa: E402


def queue_of(peer, folder):
    """A peer's queue as a job knows it."""
    return other_queues.other_queue("amqp1", peer.url, peer.queue, password_file(folder, PASSWORD))


def test_a_queue_is_counted_and_stays(peer, tmp_path, monkeypatch):
    """The depth of a queue: Artemis reports it; Qpid's messages are counted, up to a limit."""
    monkeypatch.delenv("ACKQ_LINK_PASSWORD", raising=False)
    queue = queue_of(peer, tmp_path)
    assert asyncio.run(queue.depth()).messages == 0
    peer.publish(range(7))
    assert asyncio.run(queue.depth()).messages == 7
    assert asyncio.run(queue.depth(1)).messages == (7 if peer.server.name == "artemis" else 1)
    assert peer.ids == list(range(7))


def test_a_queue_that_is_not_there_is_told(peer, tmp_path):
    """L17: a missing remote queue is reported in the words of a link."""
    queue = queue_of(Peer(peer.server, "none"), tmp_path)
    with pytest.raises(JobError, match="there is no 'none'"):
        asyncio.run(queue.depth())
