"""Dead letters: moved by reference with their origin, and redriven (C13, Q4, Q6)."""

import pytest

from ackq.errors import InUseError, InvalidArgumentError, QueueNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c
from ackq_broker.core.queues import dead_letters, redrive
from tests.unit.core.harness import Harness, group, reading


def reject(harness: Harness, queue: str, *tags: int, **options: str) -> c.Settlement:
    """Delivers a whole queue on a channel of its own, and rejects some tags."""
    channel = f"rejecting-{harness.now_us}"
    harness.deliver(channel, queue)
    settlement = harness.settle(channel, Outcome.REJECTED, *tags, **options)
    harness.do(c.CloseChannel(channel.encode()))
    return settlement


def origins(harness: Harness, queue: str) -> list[tuple[str, list[int], list[int], str, str, int]]:
    """Queue, positions, delivery counts, reason, first queue and deaths of each piece."""
    return [
        (
            piece.origin.queue,
            piece.origin.positions.tolist(),
            piece.origin.delivery_counts.tolist(),
            piece.origin.reason,
            piece.origin.first_queue,
            piece.origin.times,
        )
        for piece in views.browse(harness.core.state, queue)
        if piece.origin is not None
    ]


def test_a_rejected_message_moves_by_reference(harness: Harness) -> None:
    """C13, I4: it moves in one record, and its block lives until the dead letter is accepted."""
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d")
    block = harness.publish_to("q", 5).block_id
    harness.deliver("x", "q")
    decision = harness.decide(c.Settle(b"x", Outcome.REJECTED, up_to=2, reason="not a number"))
    assert [type(record) for record in decision.records] == [records.Settled]
    assert decision.reply == c.Settlement(2, 2, 0)
    assert (harness.browse("q"), harness.browse("d")) == (["m3", "m4", "m5"], ["m1", "m2"])
    assert origins(harness, "d") == [("q", [1, 2], [1, 1], "not a number", "q", 1)]
    harness.settle("x", Outcome.ACCEPTED, up_to=5)
    assert harness.core.drain_dead_blocks() == []
    assert harness.deliver("y", "d") == [(1, "m1", 1), (2, "m2", 1)]
    harness.settle("y", Outcome.ACCEPTED, up_to=2)
    assert harness.core.drain_dead_blocks() == [block]


def test_an_origin_tells_where_each_row_came_from(harness: Harness) -> None:
    """C13: it has positions and counts by row, time and reason; also in deliveries and fetches."""
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d")
    harness.publish(["q", "d", "q", "q", "q"])
    reject(harness, "q", 4)
    reject(harness, "q", 1, 3, reason="bad")
    assert origins(harness, "d") == [
        ("q", [4], [1], "rejected", "q", 1),
        ("q", [1, 3], [2, 2], "bad", "q", 1),
    ]
    pieces = views.browse(harness.core.state, "d")
    assert pieces[0].origin is None
    assert {p.origin.dead_lettered_us for p in pieces[1:] if p.origin} == {
        r.at_us for r in harness.log if isinstance(r, records.Settled)
    }
    delivery = harness.do(c.Deliver(b"y", "d", 9))
    assert [p.origin is None for p in delivery.pieces] == [True, False, False]
    harness.do(c.CloseChannel(b"y"))
    reader = harness.lease("d")
    assert [p.origin is None for p in reader.pieces(0, 4)] == [True, False, False]


def test_dead_letters_of_a_fragmented_block(harness: Harness) -> None:
    """C13, I4: scattered rows of blocks that several queues share."""
    harness.declare("d", "e")
    harness.declare("q", dead_letter_queue="d")
    harness.bind("x", "topic", q="#", e="#.b")
    blocks = [harness.publish(["a.a", "a.b", "b.a", "b.b"], exchange="x").block_id for _ in "12"]
    reject(harness, "q", 2, 3, 5, 8)
    assert harness.browse("d") == ["m2", "m3", "m5", "m8"]
    assert harness.browse("q") == ["m1", "m4", "m6", "m7"]
    harness.do(c.PurgeQueue("q"))
    harness.do(c.PurgeQueue("e"))
    assert harness.core.drain_dead_blocks() == []
    restored = Core.restore(harness.core.snapshot())
    assert views.live_blocks(restored.state) == views.live_blocks(harness.core.state)
    harness.deliver("y", "d")
    harness.settle("y", Outcome.ACCEPTED, 1, 2)
    assert harness.core.drain_dead_blocks() == blocks[:1]
    harness.settle("y", Outcome.ACCEPTED, 3, 4)
    assert harness.core.drain_dead_blocks() == blocks[1:]


def test_one_block_in_many_runs_of_a_queue(harness: Harness) -> None:
    """I4: rows rejected one by one are as many runs; a purge of all frees their block once."""
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d")
    block = harness.publish_to("q", 6).block_id
    harness.deliver("x", "q")
    for tag in (5, 1, 3, 2, 6, 4):
        harness.settle("x", Outcome.REJECTED, tag)
    assert harness.browse("d") == ["m5", "m1", "m3", "m2", "m6", "m4"]
    assert [p for _, ps, *_ in origins(harness, "d") for p in ps] == [5, 1, 3, 2, 6, 4]
    assert harness.core.drain_dead_blocks() == []
    assert harness.do(c.PurgeQueue("d")) == 6
    assert harness.core.drain_dead_blocks() == [block]
    assert views.live_blocks(harness.core.state).to_array().tolist() == []


def test_the_built_in_queue_takes_over(harness: Harness) -> None:
    """C13: `ackq.dead` is declared by the decision that first finds the target missing."""
    harness.declare_filled("q", 3, dead_letter_queue="gone")
    harness.deliver("x", "q")
    decision = harness.decide(c.Settle(b"x", Outcome.REJECTED, up_to=1))
    assert [type(r) for r in decision.records] == [records.QueueDeclared, records.Settled]
    info = harness.info("ackq.dead")
    assert (info.properties, info.ready) == (c.QueueProperties(), 1)
    harness.settle("x", Outcome.REJECTED, 2)
    assert harness.browse("ackq.dead") == ["m1", "m2"]
    harness.restart()
    assert harness.browse("ackq.dead") == ["m1", "m2"]
    harness.declare("gone")
    harness.deliver("x", "q")
    harness.settle("x", Outcome.REJECTED, 1)
    assert harness.browse("gone") == ["m3"]
    with pytest.raises(InvalidArgumentError, match="reserved for the broker"):
        harness.declare("ackq.dead")


def test_what_dies_in_the_built_in_queue_is_gone(harness: Harness) -> None:
    """C13: a dead letter rejected in it is dropped; it is purged and deleted like others."""
    harness.declare_filled("q", 2, dead_letter_queue="gone")
    reject(harness, "q", 1, 2)
    assert reject(harness, "ackq.dead", 1) == c.Settlement(1, 0, 1)
    assert harness.do(c.PurgeQueue("ackq.dead")) == 1
    harness.do(c.DeleteQueue("ackq.dead"))
    harness.publish_to("q", 1)
    assert reject(harness, "q", 1) == c.Settlement(1, 1, 0)


def test_a_full_dead_letter_queue_takes_more(harness: Harness) -> None:
    """C13, Q3: reject-publish refuses publishers, but never dead letters."""
    harness.declare("d", max_length=1)
    harness.declare_filled("q", 3, dead_letter_queue="d")
    assert reject(harness, "q", 1, 2, 3).dead_lettered == 3
    assert harness.info("d").ready == 3
    assert len(harness.publish_to("d", 1).nacks) == 1


def test_a_full_dead_letter_queue_drops_its_head(harness: Harness) -> None:
    """C13, Q3: a drop-head queue keeps the newest messages, also among new dead letters."""
    harness.declare("d", max_length=2, max_bytes=30, overflow="drop-head")
    harness.declare("q", dead_letter_queue="d")
    harness.publish(["d", "q", "q", "q"])
    assert reject(harness, "q", 1) == c.Settlement(1, 1, 0)
    assert harness.browse("d") == ["m1", "m2"]
    reject(harness, "q", 1, 2)
    assert harness.browse("d") == ["m3", "m4"]
    assert harness.info("d").dropped == 2
    assert harness.info("q").dead_lettered == 3


def test_what_comes_back_in_the_same_record_counts_for_a_drop_head_queue(harness: Harness) -> None:
    """Q3, C13, C14: matured and requeued messages count with the dead letters of their record."""
    harness.declare("d", max_length=3, overflow="drop-head")
    harness.declare("q", dead_letter_queue="d", delivery_limit=1, message_ttl_ms=2000)
    harness.publish_to("d", 3)
    for tag, _, _ in harness.deliver("x", "d", 3):
        harness.settle("x", Outcome.RELEASED, tag, delay_ms=1000)
    harness.publish_to("q", 2)
    assert harness.wait(3) == c.Ticked(expired=2, dead_lettered=2, matured=3)
    assert (harness.browse("d"), harness.info("d").dropped) == (["m3", "m4", "m5"], 2)

    harness.publish_to("q", 1)
    for outcome in (Outcome.FAILED, Outcome.RELEASED):
        (row,) = harness.deliver("y", "q")
        harness.settle("y", outcome, row[0])
    tags = [row[0] for row in harness.deliver("y", "q") + harness.deliver("y", "d", 3)]
    assert harness.settle("y", Outcome.FAILED, *tags) == c.Settlement(4, dead_lettered=1)
    assert (harness.browse("d"), harness.info("d").dropped) == (["m4", "m5", "m6"], 3)


def test_a_queue_may_be_its_own_dead_letter_queue(harness: Harness) -> None:
    """C13: a rejected message goes to its tail as a new one; bounds see it leave and enter."""
    harness.declare_filled("q", 2, dead_letter_queue="q", max_length=2, overflow="drop-head")
    assert reject(harness, "q", 1) == c.Settlement(1, 1, 0)
    assert harness.deliver("x", "q") == [(1, "m2", 2), (2, "m1", 1)]
    harness.do(c.CloseChannel(b"x"))
    reject(harness, "q", 2)
    assert origins(harness, "q") == [("q", [3], [2], "rejected", "q", 2)]
    harness.do(c.DeleteQueue("q"))
    assert views.live_blocks(harness.core.state).to_array().tolist() == []


def test_deaths_count_by_queue_and_cause(harness: Harness) -> None:
    """C13: a second death has its own origin, and the count of deaths of this queue and cause."""
    harness.declare("e", dead_letter_queue="d")
    harness.declare("d", dead_letter_queue="e")
    harness.declare_filled("q", 2, dead_letter_queue="d")
    harness.publish_to("d", 1)
    reject(harness, "q", 1, 2)
    reject(harness, "d", 1, 2, 3)
    assert origins(harness, "e") == [
        ("d", [1], [1], "rejected", "d", 1),
        ("d", [2, 3], [1, 1], "rejected", "q", 1),
    ]
    assert harness.browse("e") == ["m3", "m1", "m2"]
    reject(harness, "e", 1, 2, 3)
    reject(harness, "d", 1, 2, 3)
    assert [(queue, times) for queue, *_, times in origins(harness, "e")] == [("d", 2)] * 2


def test_origins_survive_restarts_and_go_with_their_messages(harness: Harness) -> None:
    """C13, Q7, I5: no origin is kept after its last message."""
    harness.declare("d", "plain")
    harness.declare_filled("q", 9, dead_letter_queue="d")
    harness.deliver("x", "q")
    for tag in range(1, 10):
        harness.settle("x", Outcome.REJECTED, tag, reason=f"reason {tag % 2}")
    expected = origins(harness, "d")
    harness.restart()
    assert origins(harness, "d") == expected
    harness.deliver("x", "d")
    harness.settle("x", Outcome.ACCEPTED, 1, 3, 5, 7, 9)
    assert [reason for _, _, _, reason, _, _ in origins(harness, "d")] == ["reason 0"] * 4
    assert b"reason 1" not in harness.core.snapshot()
    harness.settle("x", Outcome.ACCEPTED, up_to=8)
    assert b"reason 0" not in harness.core.snapshot()


def test_the_reasons_of_dead_letters_are_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C13, I6: a reason over the bound is `other`; a known one stays, and removals make room."""
    monkeypatch.setattr(dead_letters, "MAX_ORIGINS", 2)
    harness.declare("dead")
    harness.declare_filled("q", 6, dead_letter_queue="dead")
    harness.deliver("c", "q")
    for tag, reason in enumerate(("a", "b", "c", "b", "d"), 1):
        harness.settle("c", Outcome.REJECTED, tag, reason=reason)
    assert reasons(harness) == ["a", "b", dead_letters.OTHER, "b", dead_letters.OTHER]
    harness.restart()
    assert harness.core._state.signals.origins == 3
    harness.do(c.PurgeQueue("dead"))
    assert harness.core._state.signals.origins == 0
    reject(harness, "q", 1, reason="e")
    assert reasons(harness) == ["e"]


def test_the_reasons_of_one_record_are_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C13, S6, I6: dead letters of a query's batch over the bound have no batch either."""
    monkeypatch.setattr(dead_letters, "MAX_ORIGINS", 2)
    reader = reading(harness)
    given = [group(Outcome.REJECTED, tag, reason=f"r{tag}") for tag in (1, 2, 3, 4)]
    reader.say(*given, group(Outcome.REJECTED, 5))
    reader.advance(6)
    by_batch = [
        (piece.origin.reason, piece.origin.batch_id)
        for piece in views.browse(harness.core.state, "dead")
        if piece.origin is not None and piece.origin.session == "s"
    ]
    other = (dead_letters.OTHER, -1)
    assert by_batch == [("r1", 7), ("r2", 7), other, other, ("rejected", -1)]


def reasons(harness: Harness) -> list[str]:
    """The reason of each dead letter."""
    found = origins(harness, "dead")
    return [reason for _, positions, _, reason, _, _ in found for _ in positions]


def test_a_dead_letter_queue_is_in_use(harness: Harness) -> None:
    """Q4: it is deleted by force, or once no queue names it."""
    harness.declare("q", dead_letter_queue="d")
    harness.declare("d")
    with pytest.raises(InUseError, match=r"1 queue \(q\) as dead-letter queue") as caught:
        harness.do(c.DeleteQueue("d"))
    assert caught.value.fields["sources"] == "q"
    harness.core = Core.restore(harness.core.snapshot())
    with pytest.raises(InUseError):
        harness.do(c.DeleteQueue("d"))
    harness.do(c.DeleteQueue("d", force=True))
    harness.declare("d")
    with pytest.raises(InUseError):
        harness.do(c.DeleteQueue("d"))
    harness.do(c.DeleteQueue("q"))
    assert harness.do(c.DeleteQueue("d")) == c.DeletedQueue(0, 0)


def test_dead_letters_of_transient_messages_are_transient(harness: Harness) -> None:
    """C13, Q7: a transient message does not become durable as a dead letter."""
    harness.declare("d")
    harness.declare_filled("q", 1, dead_letter_queue="d")
    harness.publish_to("q", 1, persistent=False)
    reject(harness, "q", 1, 2)
    assert harness.restart() == 1
    assert harness.browse("d") == ["m1"]


# --- redrive ---


def test_redrive_moves_dead_letters_back(harness: Harness) -> None:
    """Q6: in one record, never in both places; redriven messages are ordinary ones again."""
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d", delivery_limit=1)
    harness.publish(["q", "q", "q", "d"])
    reject(harness, "q", 1, 3)
    decision = harness.decide(c.Redrive("d"))
    assert [type(record) for record in decision.records] == [records.Redriven]
    assert decision.reply == c.Redriven(2, 1, more=False, last=3)
    assert (harness.browse("d"), harness.browse("q")) == (["m4"], ["m2", "m1", "m3"])
    assert origins(harness, "q") == []
    assert harness.deliver("x", "q") == [(1, "m2", 2), (2, "m1", 1), (3, "m3", 1)]
    assert harness.decide(c.Redrive("d")) == c.Decision((), c.Redriven(0, 1, more=False, last=3))
    with pytest.raises(QueueNotFoundError):
        harness.do(c.Redrive("nowhere"))


def test_redrive_by_range_and_number(harness: Harness) -> None:
    """Q6: the lowest positions move first, whichever queue they came from."""
    harness.declare("d")
    for queue in ("a", "b"):
        harness.declare(queue, dead_letter_queue="d")
    harness.publish(["a", "b"] * 4)
    harness.deliver("x", "a")
    harness.deliver("x", "b")
    for tag in (1, 5, 2, 6, 3, 7, 4, 8):
        harness.settle("x", Outcome.REJECTED, tag)
    assert harness.browse("d") == [f"m{n}" for n in range(1, 9)]
    assert harness.do(c.Redrive("d", max_messages=3))[:2] == (3, 5)
    assert (harness.browse("a"), harness.browse("b")) == (["m1", "m3"], ["m2"])
    assert harness.do(c.Redrive("d", first=5, last=6))[:2] == (2, 0)
    assert harness.browse("d") == ["m4", "m7", "m8"]


def test_redrive_leaves_what_is_held_and_what_has_no_home(harness: Harness) -> None:
    """Q6: unacked ones stay held; the others go home by queue id, else by name, else they stay."""
    harness.declare("d")
    for queue in ("a", "b", "c"):
        harness.declare(queue, dead_letter_queue="d")
    harness.publish(["a", "a", "b", "c"])
    for queue in ("a", "b", "c"):
        harness.deliver("x", queue)
    harness.settle("x", Outcome.REJECTED, up_to=4)
    harness.deliver("y", "d", 1)
    harness.do(c.DeleteQueue("b"))
    harness.do(c.DeleteQueue("c"))
    harness.declare("c")
    assert harness.do(c.Redrive("d"))[:2] == (2, 1)
    assert [harness.browse(queue) for queue in "acd"] == [["m2"], ["m4"], ["m1", "m3"]]


def test_redrive_does_not_go_to_a_queue_that_is_being_deleted(harness: Harness) -> None:
    """Q4, Q6: a deleted queue that stays for its unacked messages is not found by name."""
    harness.declare("d")
    harness.declare_filled("q", 2, dead_letter_queue="d")
    harness.deliver("x", "q")
    harness.settle("x", Outcome.REJECTED, 1)
    harness.do(c.DeleteQueue("q", force=True))
    assert harness.do(c.Redrive("d"))[:2] == (0, 1)


def test_redrive_keeps_to_the_bounds_of_the_queue(harness: Harness) -> None:
    """Q3, Q6: a dead letter without room stays one; a drop-head queue takes all."""
    harness.declare("d")
    harness.declare("full", dead_letter_queue="d", max_length=4)
    harness.declare("ring", dead_letter_queue="d", max_length=2, overflow="drop-head")
    harness.publish(["full", "full", "full", "ring", "ring"])
    reject(harness, "full", 1, 2, 3)
    reject(harness, "ring", 1, 2)
    harness.publish(["full", "full", "ring"])
    assert harness.do(c.Redrive("d"))[:2] == (4, 1)
    assert harness.browse("full") == ["m6", "m7", "m1", "m2"]
    assert harness.browse("ring") == ["m4", "m5"]
    assert harness.browse("d") == ["m3"]


def test_redrive_of_a_queue_that_is_its_own_target_changes_nothing(harness: Harness) -> None:
    """Q6: its dead letters are in their original queue already."""
    harness.declare_filled("q", 1, dead_letter_queue="q")
    reject(harness, "q", 1)
    assert harness.do(c.Redrive("q"))[:2] == (0, 1)


def test_a_redrive_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q6: a record moves a bounded number, and reports more, and the last position it looked at."""
    monkeypatch.setattr(redrive, "MOST_REDRIVEN", 3)
    harness.declare("d")
    harness.declare("q", dead_letter_queue="d", max_length=6)
    harness.publish_to("d", 1)
    harness.publish_to("q", 6)
    tags = [row[0] for row in harness.deliver("x", "q", 6)]
    harness.settle("x", Outcome.REJECTED, *tags)
    assert harness.do(c.Redrive("d", max_messages=2)) == c.Redriven(2, 5, more=False, last=7)
    harness.publish_to("q", 1)
    assert harness.do(c.Redrive("d")) == c.Redriven(3, 2, more=False, last=7)
    harness.do(c.PurgeQueue("q"))
    harness.publish_to("q", 6)
    tags = [row[0] for row in harness.deliver("x", "q", 6)]
    harness.settle("x", Outcome.REJECTED, *tags)
    assert harness.do(c.Redrive("d")) == c.Redriven(3, 5, more=True, last=13)
    assert harness.do(c.Redrive("d", last=12)) == c.Redriven(3, 1, more=False, last=12)
    assert harness.do(c.Redrive("d")) == c.Redriven(0, 2, more=False, last=13)


def test_what_has_no_room_does_not_stop_what_has(harness: Harness) -> None:
    """Q3, Q6: dead letters of a full queue stay, those after them are redriven."""
    harness.declare("d")
    harness.declare("full", dead_letter_queue="d", max_length=2)
    harness.declare("q", dead_letter_queue="d")
    for queue in ("full", "q"):
        harness.publish_to(queue, 2)
        tags = [row[0] for row in harness.deliver("x", queue, 2)]
        harness.settle("x", Outcome.REJECTED, *tags)
    harness.publish_to("full", 2)
    assert harness.do(c.Redrive("d", max_messages=2)) == c.Redriven(2, 2, more=False, last=4)
    assert harness.browse("q") == ["m3", "m4"]


def test_a_dead_letter_of_a_durable_queue_survives_its_old_queue(harness: Harness) -> None:
    """C13, Q7, P5: the block is kept for this, though its confirm does not wait for the disk."""
    harness.declare("dead")
    harness.declare("volatile", durable=False, dead_letter_queue="dead")
    decision = harness.decide(harness.command(["volatile"] * 2))
    assert decision.reply.durable
    assert decision.after < harness.core.sequence
    (published,) = decision.records
    assert (list(published.accepted), list(published.transient)) == ([], [1, 2])
    block = decision.reply.block_id
    harness.labels |= {(block, 0): "m1", (block, 1): "m2"}
    reject(harness, "volatile", 1)
    harness.restart()
    assert harness.browse("dead") == ["m1"]
    assert [queue.queue for queue in views.list_queues(harness.core.state)] == ["dead"]


@pytest.mark.parametrize("properties", [{}, {"dead_letter_queue": "dead"}], ids=["none", "dead"])
def test_what_cannot_survive_is_not_kept(harness: Harness, properties: dict[str, str]) -> None:
    """P5, P12, Q7: a transient message, or one that no durable queue can get, is not durable."""
    harness.declare("dead")
    harness.declare("volatile", durable=False, **properties)
    persistent = not properties
    assert not harness.publish_to("volatile", 1, persistent=persistent).durable
