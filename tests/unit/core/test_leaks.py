"""Commands leak no memory of the C library, where bitmaps have theirs."""

import pytest

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import PUBLISHER, Unchecked, group
from tests.unit.core.memory import allocated

ROUNDS = 60
# What a round may leave: parts of arrays and bitmaps that stay.
MOST_BYTES = 100


def consume(harness, _):
    """A consumer accepts, rejects and releases; messages expire, and the rest is purged."""
    harness.publish_to("q", 20, ttls_ms=[1000] * 5 + [0] * 15, sizes=range(1, 21))
    tags = [tag for tag, _, _ in harness.deliver("c", "q", 15)]
    harness.settle("c", Outcome.ACCEPTED, *tags[:4])
    harness.settle("c", Outcome.REJECTED, *tags[4:6])
    harness.settle("c", Outcome.RELEASED, *tags[6:])
    harness.wait(2)
    harness.browse("q")


def publish(harness, _):
    """A publisher repeats a message, and others share a block with it."""
    command = harness.command(["q"])
    harness.send(command)
    harness.do(command)
    harness.together("q", [5, 6], (b"o" * 16,))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))


def read(harness, reader):
    """A query reads a batch, settles some of it and accepts; its session is rewound."""
    harness.publish_to("q", 10)
    floor = reader.reply.end_tag
    end = reader.advance(floor).end_tag
    reader.note(batch_id=end)
    reader.fetch(floor, end)
    said = group(Outcome.REJECTED, end), group(Outcome.FAILED, end - 1)
    reader.say(*said, owner=reader.owner(batch_id=end))
    reader.advance(end, min_messages=1_000)
    harness.do(c.RewindSession("s", c.Rewind(batch_id=end)))


def write(harness, _):
    """A sink commits a batch."""
    batch = harness.number
    harness.number += 1
    harness.commit("job", batch, harness.stage("job", batch, ["q"] * 3, name=f"s{batch}"))


@pytest.mark.parametrize("work", [consume, publish, read, write])
def test_commands_leak_nothing(work):
    """I6: the memory of the broker does not grow with commands that are repeated."""
    harness = Unchecked()
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead")
    reader = harness.open("q", session="s", retain_bytes=1)
    reader.advance(0)

    def grown():
        before = allocated()
        for _ in range(ROUNDS):
            work(harness, reader)
            for queue in ("q", "dead"):
                harness.do(c.PurgeQueue(queue))
            harness.labels.clear()
            harness.core.drain_dead_blocks()
            harness.core.drain_dead_letters()
            views.list_queues(harness.core.state)
        return (allocated() - before) / ROUNDS

    # A leak is in each of them; a table that grows is in some.
    assert min(grown() for _ in range(5)) < MOST_BYTES
