"""Q9: the story of a message, from the records and blocks of a real journal."""

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import commands as c
from tests.unit.trace.journalled import BOB, SECOND_US, Journalled, block_of

CHANNEL = b"c" * 16


@pytest.fixture
def broker(tmp_path):
    made = Journalled(tmp_path / "data", segment_bytes=1 << 20)
    yield made
    made.running.journal.close()


def settle(broker, outcome, *tags, reason=""):
    disposition = {"reason": reason} if reason else {}
    return broker.do(c.Settle(CHANNEL, outcome, BitMap64(tags), 0, **disposition))


def test_a_message_of_a_link(broker):
    """Q9, L5: it is published by the link, once, wherever it stood in a frame that was matched."""
    broker.declare("q")
    broker.do(c.OpenLink("there", BOB, "amqp://x/q", "q", c.LinkAck.SETTLED))
    keys = np.array([[1, 1], [2, 2]], np.uint64)
    for subscription, rows in ((1, 1), (2, 2)):
        broker.do(c.SubscribeLink("there", 1))
        columns = (keys[:rows], keys[:rows, 0], BitMap(), BitMap())
        frame = c.StoreLinked("there", 1, subscription, 1, rows, 10 * rows, *columns)
        broker.do(frame, block_of("m", "n") if rows == 2 else block_of("m"))
    stored, matched = broker.traced("m")[0]
    assert stored[0].sentence == "published by link 'there' to queue 'q' at position 1"
    assert [line.what for line in matched] == ["gone"]
    assert broker.sentences("n")[0] == "published by link 'there' to queue 'q' at position 2"


def test_a_message_that_is_rejected_there(broker):
    """Q9, L28: it is no dead letter here, and was not accepted."""
    broker.declare("q")
    broker.do(c.OpenLink("there", BOB, "amqp://x/q", "q", c.LinkAck.SETTLED, reject_there=True))
    broker.do(c.SubscribeLink("there", 1))
    columns = (np.array([[1, 1]], np.uint64), np.ones(1, np.uint64), BitMap(), BitMap())
    broker.do(c.StoreLinked("there", 1, 1, 1, 1, 10, *columns), block_of("m"))
    broker.deliver("q")
    settle(broker, Outcome.REJECTED, 1, reason="boom")
    assert broker.words("m") == ["published", "delivered", "rejected", "gone"]
    assert broker.sentences("m")[2] == (
        "rejected on channel 63636363, and to be rejected where it came from"
    )


def test_a_message_that_fails_dies_and_comes_back(broker):
    """Q9, C13, C14, Q6: delivery, delay, dead letter with its reason, redrive, end."""
    broker.declare("dead")
    broker.declare("q", delivery_limit=1, dead_letter_queue="dead", redelivery_delay_ms=1_000)
    broker.publish("q", "other", "m")
    broker.deliver("q", 2)
    settle(broker, Outcome.ACCEPTED, 1)
    settle(broker, Outcome.FAILED, 2, reason="boom")
    broker.now_us += 2 * SECOND_US
    broker.do(c.Tick())
    broker.deliver("q")
    settle(broker, Outcome.FAILED, 3, reason="boom again")
    broker.do(c.Redrive("dead"))
    broker.deliver("q", no_ack=True)
    assert broker.words("m") == [
        "published",
        "delivered",
        "delayed",
        "ready",
        "delivered",
        "rejected",
        "dead-lettered",
        "left",
        "redriven",
        "accepted",
        "gone",
    ]
    sentences = broker.sentences("m")
    assert sentences[0] == "published by shop to queue 'q' at position 2"
    assert sentences[1] == "delivered to channel 63636363 under tag 2"
    assert sentences[6] == (
        "dead letter in queue 'dead' at position 1: cause delivery_limit, reason 'boom again'"
    )
    assert sentences[-1] == "in no queue"
    assert broker.words("other") == ["published", "delivered", "accepted", "gone"]


def test_a_message_that_a_query_reads(broker):
    """Q9, S1, S6: lease, read, attempt, and the outcomes of its micro-batch, each its own."""
    broker.declare("dead")
    broker.declare("q", dead_letter_queue="dead")
    broker.publish("q", "good", "bad", "late", "worse")
    broker.advance(incarnation="", open_and_lease=True)
    broker.do(c.NoteFetch("s", "i", 1, "Q", "R", 7))
    broker.advance(holder=BOB)
    broker.do(c.NoteFetch("s", "i", 2, "Q", "R2", 7))
    outcomes = (
        c.OutcomeGroup(Disposition(Outcome.REJECTED, "no id", 0), BitMap64((2,))),
        c.OutcomeGroup(Disposition(Outcome.RELEASED, "", 60_000), BitMap64((3,))),
        c.OutcomeGroup(Disposition(Outcome.REJECTED, "no body", 0), BitMap64((4,))),
    )
    owner = c.LeaseOwner("s", "Q", "R2", 7)
    broker.do(c.StageOutcomes(b"o" * 16, owner, "", False, outcomes))
    broker.do(c.CommitOutcomes(owner, ((b"o" * 16, 3),)))
    broker.advance(4, holder=BOB)
    read = ["published", "leased", "read", "attached", "read"]
    assert broker.words("good") == [*read, "accepted", "gone"]
    assert broker.words("bad") == [*read, "rejected", "dead-lettered", "ready"]
    assert broker.words("late") == [*read, "delayed", "delayed"]
    sentences = broker.sentences("good")
    assert sentences[1] == (
        "leased by session 's' under tag 1 in epoch 1: process 11 on host-a (app-a)"
    )
    assert sentences[2] == "read from session 's' by query Q (run R) in its micro-batch 7"
    assert sentences[3] == "attempt 2 at its lease: process 22 on host-b (app-b) attached again"
    assert sentences[5] == "accepted by session 's' (tag 1)"
    # One record moves both, each for its own reason.
    for message, reason in (("bad", "no id"), ("worse", "no body")):
        (death,) = [each for each in broker.sentences(message) if "dead letter" in each]
        assert f"reason '{reason}'" in death
        assert "settled by session 's' with batch 7" in death


def test_a_lease_that_is_given_back(broker):
    """Q9, S5, S8: released by an operator, detached by a timeout."""
    broker.declare("q")
    broker.publish("q", "m")
    broker.advance(incarnation="", open_and_lease=True)
    broker.do(c.SettleLease("s", Outcome.RELEASED, ((1, 1),)))
    broker.advance(1, holder=BOB)
    broker.do(c.DetachSession("s", "i", broker.core.sessions("s")[0].epoch))
    broker.do(c.ReleaseSession("s"))
    assert broker.words("m") == ["published", "leased", "ready", "leased", "ready", "ready"]
    sentences = broker.sentences("m")
    assert sentences[2] == "ready again: an operator released it from session 's'"
    assert sentences[4] == "ready again: the session timeout of session 's' is over"
    assert sentences[-1] == "ready in queue 'q' at position 1"


def test_rows_of_a_batch_and_of_a_transaction(broker):
    """Q9, K3, P13: staged with the writer, visible with the commit."""
    broker.declare("q")
    broker.do(c.OpenStage(b"s" * 16, "W", 3, "run", label="partition 0"))
    routes = (c.Route("q"),)
    broker.do(c.StageBlock(b"s" * 16, "", routes, 2, 20), block_of("a", "w"))
    assert broker.words("w") == ["staged", "staged"]
    assert broker.sentences("w")[-1] == "in no queue: staged, and not committed"
    broker.do(c.SealStage(b"s" * 16, 2, 20))
    broker.do(c.CommitBatch("W", 3, "run", "", (c.StageRef(b"s" * 16, 2, 20),)))
    assert broker.sentences("w") == [
        "staged by batch 3 of writer 'W' (partition 0); not visible yet",
        "batch 3 of writer 'W' committed: visible in queue 'q' at position 2",
        "ready in queue 'q' at position 2",
    ]


def test_messages_that_nobody_takes(broker):
    """Q9, Q3, Q4, Q7: purged, pushed out, expired, deleted with the queue, gone with a restart."""
    broker.declare("purged")
    broker.declare("short", max_length=1, overflow="drop-head")
    broker.declare("brief", message_ttl_ms=10)
    broker.declare("deleted")
    for queue in ("purged", "short", "brief", "deleted"):
        broker.publish(queue, queue)
    broker.do(c.PurgeQueue("purged"))
    broker.publish("short", "next")
    broker.now_us += SECOND_US
    broker.do(c.Tick())
    broker.do(c.DeleteQueue("deleted", force=True))
    ends = {queue: broker.words(queue)[1:] for queue in ("purged", "short", "brief", "deleted")}
    assert ends == {
        "purged": ["purged", "gone"],
        "short": ["dropped", "gone"],
        "brief": ["expired", "gone"],
        "deleted": ["dropped", "gone"],
    }
    assert "at its bound" in broker.sentences("short")[1]


def test_a_restart_ends_channels(broker):
    """Q9, Q7: what was unacked on one is ready again."""
    broker.declare("q")
    broker.publish("q", "m")
    broker.deliver("q")
    broker.do(c.Start("history"))
    assert broker.words("m") == ["published", "delivered", "ready", "ready"]
    assert "the broker was started again" in broker.sentences("m")[2]


def test_who_holds_it_now(broker):
    """Q9: at the end."""
    broker.declare("q")
    broker.publish("q", "m")
    broker.deliver("q")
    assert broker.sentences("m")[-1] == (
        "unacked in queue 'q' at position 1: held by channel 63636363 under tag 1"
    )


def test_an_id_that_came_twice_and_one_that_never_came(broker):
    """Q9: each message has its story; the notes say what the journal has."""
    broker.declare("q")
    broker.publish("q", "m", "m")
    broker.publish("q", "m")
    stories, notes = broker.traced("m")
    assert [lines[-1].position for lines in stories] == [1, 2, 3]
    assert notes == ["The journal has all records from the first one on."]
    stories, (note,) = broker.traced("M")
    assert stories == []
    assert "No message with the id 'M'" in note
    assert "all records from the first one on" in note


def test_a_publisher_without_a_label(broker):
    """Q9: its id says which it was."""
    other = b"o" * 16
    broker.do(c.OpenPublisher(other))
    broker.declare("q")
    broker.publish("q", "m", publisher_id=other)
    assert broker.sentences("m")[0].startswith("published by publisher 6f6f6f6f")
