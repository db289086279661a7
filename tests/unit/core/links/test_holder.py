"""The holder of a link, its source and its queue (L1, L13, L17, L27)."""

import pytest
from pyroaring import BitMap64

from ackq import errors, limits
from ackq_broker.core import commands as c
from ackq_broker.core import records
from ackq_broker.core.holders import new_holder
from tests.unit.core.harness import ALICE, BOB, Harness, refused
from tests.unit.core.link_process import SOURCE, LinkProcess, accept, expanded


def test_another_user_does_not_open_a_link(process: LinkProcess) -> None:
    """A10, L1: nor learns who runs the link; an unowned link belongs to its first opener."""
    process.open(user="alice")
    for live in (True, False):
        wish = {"user": "mallory", "holder": BOB, "incumbent_live": live}
        error = refused(errors.PermissionDeniedError, "another user's", process.open, **wish)
        assert "host" not in error.message
    process.harness.restart()
    with pytest.raises(errors.PermissionDeniedError):
        process.open(user="mallory")
    process.open(user="alice", holder=BOB, incumbent_live=False)


def test_a_link_is_of_one_source_queue_and_key(process: LinkProcess) -> None:
    """L1, L2: under another rule for origin keys all that is held would be stored again; a link of
    an earlier version has the rule of its next start. Another source or queue is another link.
    """
    source = f"{process.options['source']}, key in a name"
    process.open(source=source)
    process.open(source=f"{source}, key message_id")
    process.harness.restart()
    for told, wish in (
        (r"name, key message_id to.*key none", {"source": f"{source}, key none"}),
        ("ackq link remove l", {"source": f"{source}/other, key message_id"}),
        ("ackq link remove l", {"source": source, "queue": "dead"}),
    ):
        refused(errors.PreconditionFailedError, told, process.open, **wish)
    process.open(source=source, queue="q")


def test_options_may_change(process: LinkProcess) -> None:
    """L9: the holder may change `ack`; waiting deliveries are permitted then."""
    process.store(["a"])
    assert process.open(ack=c.LinkAck.STORED).epoch == 1
    assert process.permit() == [1]
    process.open(ack=c.LinkAck.SETTLED)
    process.subscribe()
    assert expanded(process.store(["a"])) == [(1, 1, True, False)]
    accept(process.harness, 1)
    assert process.permit() == [1]
    process.state()


def test_a_newer_stream_replaces_the_older(process: LinkProcess) -> None:
    """L1: openings are numbered, and calls of an earlier one are refused."""
    late = process.command(["a"])
    assert (process.opened.stream, process.open().stream) == (1, 2)
    for command in (late, c.PermitLinked("l", 1, 1), c.SubscribeLink("l", 1)):
        refused(errors.FencedError, "A newer stream of link 'l'", process.harness.do, command)


def test_a_queue_of_a_link_is_in_use(process: LinkProcess) -> None:
    """L13, Q4: messages deleted, even by force, or purged would be acknowledged remotely."""
    harness = process.harness
    process.store(["a"])
    for command in (c.DeleteQueue("q"), c.DeleteQueue("q", force=True), c.PurgeQueue("q")):
        refused(errors.InUseError, "ackq link remove l", harness.do, command)
    harness.do(c.RemoveLink("l", forget=True))
    assert harness.do(c.PurgeQueue("q")) == 1
    harness.do(c.DeleteQueue("q"))


def test_what_no_link_holds_can_be_purged(process: LinkProcess) -> None:
    """L13, Q4: messages of other publishers, and those permitted when stored, can be purged."""
    process.harness.publish_to("q", 2)
    assert process.harness.do(c.PurgeQueue("q")) == 2
    process.open(ack=c.LinkAck.STORED)
    process.store(["a"])
    assert process.harness.do(c.PurgeQueue("q")) == 1


@pytest.mark.parametrize("dead_letter_queue", ["", "t"])
def test_a_queue_that_drops_what_expires(harness: Harness, dead_letter_queue: str) -> None:
    """L13, C13: such a message is lost, also where it would expire into its own queue.

    Nor does a link go on that an earlier version has opened.
    """
    harness.declare("t", message_ttl_ms=1_000, dead_letter_queue=dead_letter_queue)
    told = "another dead-letter queue, or without a TTL"
    refused(errors.PreconditionFailedError, told, LinkProcess, harness, queue="t")
    queue_id, holder = harness.core.state.queue_ids["t"], new_holder(ALICE, 0)
    opened = records.LinkOpened("l", "a" * 32, 1, holder, SOURCE, queue_id, "settled", 0)
    harness.core.apply(harness.core.sequence + 1, opened)
    refused(errors.PreconditionFailedError, told, LinkProcess, harness, queue="t")


def test_a_lost_block_was_not_settled(process: LinkProcess) -> None:
    """L9, Q7: a message lost with a disk block is not permitted; it is stored when redelivered."""
    harness = process.harness
    process.store(["kept"])
    lost = process.store(["a", "b", "c", "d"])
    assert lost.block_id is not None
    harness.lease("q", max_messages=3).advance(3)
    assert process.permit() == [1, 2, 3]
    process.subscribe()
    process.store(["kept", "a", "b", "c", "d"])
    harness.do(c.Start("history", "", BitMap64([lost.block_id])))
    process.state()
    assert process.open().subscription == 0
    refused(errors.InvalidArgumentError, "it has none now", process.permit)
    process.subscribe()
    permitted = [(number, number, True, True) for number in (1, 2, 3)]
    stored = [(4, 6, False, False), (5, 7, False, False)]
    assert expanded(process.store(["kept", "a", "b", "c", "d"])) == permitted + stored


def test_a_lost_block_of_nothing_that_waits(process: LinkProcess) -> None:
    """L17, Q7: the subscription continues when none of its messages is lost."""
    other = process.harness.publish_to("q", 1)
    process.store(["a"])
    process.harness.do(c.Start("history", "", BitMap64([other.block_id])))
    assert process.open().next_number == 2


def test_a_link_of_an_older_history_is_refused(process: LinkProcess) -> None:
    """L27, Q8: its permits may be missing: it waits for an operator, but a new link does not."""
    harness = process.harness
    process.store(["a", "b"], content=True)
    process.store(["i"])
    harness.do(c.Start("copied", "copied"))
    for command in (c.SubscribeLink("l", 1), c.OpenLink("l", **process.options)):
        refused(errors.HistoryChangedError, "ackq broker accept-history", harness.do, command)
    assert LinkProcess(harness, "new").subscribe() == 1
    assert harness.do(c.AcceptHistory()).links == 1
    assert process.open().subscription == 0
    process.subscribe()
    # Records may be missing: no entry with a key of content is sure to have no permit.
    assert process.matched(["a"], content=True, redelivered=True) == [False]
    assert process.info().ambiguous == 1
    assert process.matched(["i"]) == [True]


def test_what_makes_no_link(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6, L9: a queue that is not there, no name or too long a source, or one link too many."""
    monkeypatch.setattr(limits, "MAX_LINKS", 0)
    refused(errors.QueueNotFoundError, "'q'", LinkProcess, harness)
    harness.declare("q")
    for name, source in (("", "s"), ("ackq.x", "s"), ("a,b", "s"), ("l", "s" * 2_000)):
        refused(errors.InvalidArgumentError, "link", LinkProcess, harness, name, source=source)
    both = {"ack": c.LinkAck.STORED, "reject_there": True}
    told = "ack=settled, or on-reject=here"
    refused(errors.InvalidArgumentError, told, LinkProcess, harness, **both)
    refused(errors.LimitError, "ackq link remove", LinkProcess, harness)
    refused(errors.LinkNotFoundError, "ackq link list", harness.do, c.RemoveLink("l"))
