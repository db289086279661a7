"""Q9: from a snapshot on, where the records before it are gone; and what is said of those."""

import pytest
from pyroaring import BitMap64

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.service.engine.snapshot import _TIME
from tests.unit.trace.journalled import Journalled


@pytest.fixture
def broker(tmp_path):
    made = Journalled(tmp_path / "data", segment_bytes=4096)
    made.declare("q")
    yield made
    made.running.journal.close()


def compacted(broker):
    """Writes a snapshot of now, so that segments without a live block go."""
    state = _TIME.pack(broker.now_us) + broker.core.snapshot()
    broker.running.journal.free_blocks(broker.core.drain_dead_blocks())
    broker.running.journal.write_snapshot([state], broker.core.sequence).result(timeout=30)


def accept(broker, *tags):
    broker.do(c.Settle(b"c" * 16, Outcome.ACCEPTED, BitMap64(tags), 0))


def fill(broker, messages):
    """Messages that nobody asks for, a segment every few of them, and their end."""
    for number in range(messages):
        broker.publish("q", f"other {number}" + "x" * 200)
    tags = broker.deliver("q", messages)
    accept(broker, *range(tags.first_tag, tags.first_tag + messages))


def segments(broker):
    return sorted(int(path.name[8:28]) for path in broker.directory.glob("journal-*.seg"))


def test_a_message_that_left_before_the_snapshot(broker):
    """Q9: that is said, and not how, which nobody knows any more."""
    broker.publish("q", "stays")
    broker.deliver("q")
    fill(broker, 40)
    broker.publish("q", "m", "n")
    tags = broker.deliver("q", 2)
    accept(broker, tags.first_tag)
    fill(broker, 40)
    compacted(broker)
    assert segments(broker) != list(range(1, segments(broker)[-1] + 1))
    words = broker.words("m")
    assert words[0] == "published"
    assert words[-1] == "gone"
    assert "how is not known" in broker.sentences("m")[-1]
    assert broker.words("n") == ["published", "present", "unacked"]
    assert broker.words("stays") == ["published", "present", "unacked"]


def test_a_message_whose_segment_is_gone(broker):
    """Q9: the note says that the journal has not all."""
    broker.publish("q", "m")
    tags = broker.deliver("q")
    accept(broker, tags.first_tag)
    fill(broker, 60)
    compacted(broker)
    assert 1 not in segments(broker)
    stories, (note,) = broker.traced("m")
    assert stories == []
    assert "which is not all" in note
    assert "accepted, dropped or expired before" in note


def test_the_files_of_a_broker_that_died(broker):
    """Q9: a torn tail is no damage; what is before it is told."""
    broker.publish("q", "m")
    last = broker.directory / f"journal-{segments(broker)[-1]:020d}.seg"
    data = bytearray(last.read_bytes())
    end = len(bytes(data).rstrip(b"\0"))
    torn = bytearray(data)
    torn[end - 3 : end] = b"\0\0\0"
    last.write_bytes(torn)
    stories, notes = broker.traced("m")
    assert (stories, len(notes)) == ([], 1)
    last.write_bytes(data)
    assert broker.words("m") == ["published", "ready"]
