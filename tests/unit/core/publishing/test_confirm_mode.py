"""Publishing: every number gets one answer, every accepted number one place."""

from dataclasses import replace

import pytest
from pyroaring import BitMap, BitMap64

from ackq.errors import (
    ExchangeNotFoundError,
    InvalidArgumentError,
    LimitError,
    PublisherForgottenError,
    QueueFullError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, PUBLISHER, Harness, labels


def answers(reply: c.Published) -> list[int]:
    return sorted([*reply.confirmed, *(n for nack in reply.nacks for n in nack.numbers)])


def test_every_number_gets_one_answer(harness: Harness) -> None:
    """P3: placed, unroutable and nacked rows of one block are answered once each."""
    harness.declare("small", max_length=2)
    reply = harness.publish(["small", "nowhere", "small", "small", "nowhere"])
    assert answers(reply) == [1, 2, 3, 4, 5]
    assert list(reply.confirmed) == [1, 2, 3, 5]
    assert list(reply.returned) == [2, 5]
    assert harness.browse("small") == ["m1", "m3"]


def test_a_persistent_publish_waits_for_its_record(harness: Harness) -> None:
    """P4: the confirm of a durable placement leaves no earlier than its record is on disk."""
    harness.declare("q")
    decision = harness.decide(harness.command(["q"]))
    assert decision.reply.durable is True
    assert decision.after is None
    assert len(decision.records) == 1


@pytest.mark.parametrize(("durable", "persistent"), [(True, False), (False, True)])
def test_a_transient_publish_waits_for_the_topology_alone(
    harness: Harness, *, durable: bool, persistent: bool
) -> None:
    """P5: non-persistent, or in non-durable queues only: confirmed when enqueued."""
    harness.declare("q", durable=durable)
    topology = harness.core.sequence
    harness.publish_to("q", 1, persistent=persistent)
    decision = harness.decide(harness.command(["q"], persistent=persistent))
    assert decision.reply.durable is False
    assert decision.reply.block_id is not None
    assert decision.after == topology
    assert harness.ready("q") == 2


def test_a_persistent_row_with_one_durable_queue_makes_the_block_durable(harness: Harness) -> None:
    """P4: confirmed only when every queue has it, so one durable queue is enough to wait."""
    harness.declare("kept")
    harness.declare("lost", durable=False)
    harness.bind("x", "fanout", kept="", lost="")
    decision = harness.decide(harness.command(["k"], exchange="x"))
    assert decision.reply.durable is True
    assert decision.after is None


def mixed(harness: Harness, keys: list[str], transient: list[int]) -> c.Published:
    """Publishes one block, some rows of which are transient."""
    return harness.send(replace(harness.command(keys), transient=BitMap(transient)))


def test_rows_keep_their_order_whatever_their_modes(harness: Harness) -> None:
    """P12, Q7: rows keep their order, and a restart drops the transient ones alone."""
    harness.declare("q", "r")
    mixed(harness, ["q", "r", "q", "q", "r", "q"], [0, 2, 4])
    harness.do(c.Deliver(b"channel", "q", 2))
    assert harness.browse("q") == ["m1", "m3", "m4", "m6"]
    assert harness.browse("r") == ["m2", "m5"]
    assert len(views.live_blocks(harness.core.state)) == 1
    assert harness.restart() == 3
    assert harness.browse("q") == ["m4", "m6"]
    assert harness.browse("r") == ["m2"]
    assert harness.restart() == 0


def test_transient_rows_of_a_durable_block_are_confirmed_sooner(harness: Harness) -> None:
    """P5: transient rows are confirmed when enqueued, and with the others, whichever is first."""
    harness.declare("q", "r")
    topology = harness.core.sequence
    reply = mixed(harness, ["q", "nowhere", "q", "r"], [0, 1, 3])
    assert reply.durable is True
    assert reply.sooner == (BitMap64([1, 4]), topology)
    assert list(reply.confirmed) == [1, 2, 3, 4]
    assert mixed(harness, ["q", "q"], [0, 1]).durable is False
    assert harness.publish(["q", "q"]).sooner is None


def test_a_transient_row_stays_so_when_it_is_moved(harness: Harness) -> None:
    """P12, C13: a dead letter has the delivery mode of its message."""
    harness.declare("dead")
    harness.declare("q", dead_letter_queue="dead")
    mixed(harness, ["q"] * 4, [1, 2])
    harness.do(c.Deliver(b"channel", "q", 4))
    harness.do(c.Settle(b"channel", Outcome.REJECTED, up_to=4))
    assert harness.browse("dead") == ["m1", "m2", "m3", "m4"]
    assert harness.restart() == 2
    assert harness.browse("dead") == ["m1", "m4"]


def test_an_unroutable_message_is_confirmed(harness: Harness) -> None:
    """P7: confirmed once routing is known to be empty, without a return when not mandatory."""
    decision = harness.decide(harness.command(["nowhere"], mandatory=False))
    assert list(decision.reply.confirmed) == [1]
    assert list(decision.reply.returned) == []
    assert decision.reply.block_id is None
    assert decision.records == ()


def test_a_mandatory_unroutable_message_is_returned(harness: Harness) -> None:
    """P7: the return names exactly the unroutable rows."""
    harness.declare("q")
    reply = harness.publish(["q", "nowhere", "q"])
    assert list(reply.confirmed) == [1, 2, 3]
    assert list(reply.returned) == [2]


def test_a_full_queue_nacks_what_does_not_fit(harness: Harness) -> None:
    """P8: the rows over the bound are nacked with the reason; the others are confirmed."""
    harness.declare_filled("q", 2, max_length=3)
    reply = harness.publish_to("q", 3)
    assert list(reply.confirmed) == [3]
    (nack,) = reply.nacks
    assert list(nack.numbers) == [4, 5]
    assert isinstance(nack.reason, QueueFullError)
    assert str(nack.reason) == (
        "The queue 'q' has room for 1 only: it holds 2 of at most 3 messages, staged ones "
        "included, and 3 messages with 30 bytes came together. Its overflow is reject-publish: "
        "consume from it, purge it, or publish again later."
    )
    assert nack.reason.fields == {"queue": "q", "fitting": "1"}
    assert harness.browse("q") == ["m1", "m2", "m3"]
    (nack,) = harness.publish_to("q", 1).nacks
    assert "is full: it holds 3 of at most 3 messages, staged" in str(nack.reason)


def test_a_message_that_never_fits(harness: Harness) -> None:
    """P8, Q3: an empty queue may be too small for one message; the reason has the figures."""
    harness.declare("q", max_bytes=9, max_length=4)
    (nack,) = harness.publish_to("q", 1).nacks
    assert (
        "it holds 0 of at most 4 messages and 0 of at most 9 bytes, staged ones included, and 1 "
        "message with 10 bytes came together"
    ) in str(nack.reason)


def test_a_nacked_message_is_in_no_queue(harness: Harness) -> None:
    """P8: routing is all or nothing, also when only one of the queues is full."""
    harness.declare("wide")
    harness.declare("narrow", max_length=1)
    harness.bind("x", "fanout", wide="", narrow="")
    reply = harness.publish(["k", "k", "k"], exchange="x")
    assert list(reply.confirmed) == [1]
    assert harness.browse("wide") == ["m1"]
    assert harness.browse("narrow") == ["m1"]


def test_bytes_bound_a_queue_too(harness: Harness) -> None:
    """P8, Q3: max_bytes counts payload bytes."""
    harness.declare("q", max_bytes=35)
    reply = harness.publish_to("q", 5, row_bytes=10)
    assert list(reply.confirmed) == [1, 2, 3]
    assert views.list_queues(harness.core.state, "q")[0].payload_bytes == 30


def test_a_missing_exchange_nacks(harness: Harness) -> None:
    """P3, P8: a publish to a missing exchange is answered by a nack that names it."""
    reply = harness.publish(["k"], exchange="gone")
    (nack,) = reply.nacks
    assert isinstance(nack.reason, ExchangeNotFoundError)
    assert nack.reason.fields == {"exchange": "gone"}


def test_a_known_number_is_confirmed_though_its_exchange_is_gone(harness: Harness) -> None:
    """P8, P10: a number that is in a queue is never nacked."""
    harness.declare("q")
    harness.bind("x", "fanout", q="")
    harness.publish(["k"], exchange="x")
    harness.do(c.DeleteExchange("x"))
    reply = harness.publish(["k", "k"], numbers=[1, 2], exchange="x")
    assert list(reply.confirmed) == [1]
    assert list(reply.nacks[0].numbers) == [2]


def test_a_retransmission_is_confirmed_and_not_placed(harness: Harness) -> None:
    """P10: an accepted number is confirmed again; only new numbers are placed."""
    harness.declare_filled("q", 3)
    decision = harness.decide(harness.command(["q"] * 4, numbers=[2, 3, 4, 5]))
    assert list(decision.reply.confirmed) == [2, 3, 4, 5]
    assert decision.after is None
    harness.labels.update({(decision.reply.block_id, row): f"m{row + 2}" for row in range(4)})
    assert harness.browse("q") == labels(1, 5)


def test_a_pure_retransmission_waits_for_what_was_decided(harness: Harness) -> None:
    """P10: a retransmission of accepted numbers is answered after everything decided so far."""
    harness.declare_filled("q", 2)
    decision = harness.decide(harness.command(["q"] * 2, numbers=[1, 2]))
    assert decision.records == ()
    assert decision.after is None
    assert list(decision.reply.confirmed) == [1, 2]


def test_a_transient_retransmission_of_a_durable_number_waits(harness: Harness) -> None:
    """P5, P10: the early confirm is only for blocks without any number seen before."""
    harness.declare_filled("q", 1)
    decision = harness.decide(harness.command(["q"] * 2, numbers=[1, 2], persistent=False))
    assert decision.after is None


def test_refused_numbers_are_handled_afresh(harness: Harness) -> None:
    """P10: nacked and unroutable numbers are not remembered."""
    harness.declare("q", max_length=1)
    harness.publish(["q", "q", "later"])
    harness.do(c.PurgeQueue("q"))
    harness.declare("later")
    reply = harness.publish(["q", "later"], numbers=[2, 3])
    assert list(reply.confirmed) == [2, 3]
    assert list(reply.returned) == []
    assert harness.browse("q") == ["m2"]
    assert harness.browse("later") == ["m3"]


def test_numbers_below_the_lowest_unanswered_are_forgotten_and_stay_answered(
    harness: Harness,
) -> None:
    """P10: the broker drops such numbers; a late one is confirmed, never placed."""
    harness.declare_filled("q", 3)
    harness.publish_to("q", 1, lowest=4)
    assert views.missing(harness.core.state, PUBLISHER, 1, 6) == [(5, 6)]
    reply = harness.publish_to("q", 1, numbers=[2], lowest=1)
    assert list(reply.confirmed) == [2]
    assert harness.ready("q") == 4


def test_the_lowest_unanswered_itself_is_placed(harness: Harness) -> None:
    """P10: only lower numbers were answered, so a late frame with both places this one."""
    harness.declare("q")
    harness.publish_to("q", 1, numbers=[1])
    harness.publish_to("q", 1, numbers=[3], lowest=2)
    harness.publish_to("q", 2, numbers=[1, 2], lowest=1)
    assert harness.ready("q") == 3


def test_a_number_below_its_own_frame_s_lowest_unanswered_is_refused(harness: Harness) -> None:
    """P10: such a number could be neither placed nor confirmed truthfully."""
    harness.declare("q")
    with pytest.raises(InvalidArgumentError, match="number 1 is below 2"):
        harness.publish_to("q", 1, lowest=2)


def test_a_probe_names_what_was_never_accepted(harness: Harness) -> None:
    """P10: the answer has the ranges between accepted numbers; transient ones count as accepted."""
    harness.declare("q")
    harness.publish_to("q", 2, numbers=[3, 4])
    harness.publish_to("q", 1, numbers=[7], persistent=False)
    assert views.missing(harness.core.state, PUBLISHER, 1, 9) == [(1, 2), (5, 6), (8, 9)]
    assert views.missing(harness.core.state, PUBLISHER, 3, 4) == []
    assert views.missing(harness.core.state, PUBLISHER, 8, 2**63) == [(8, 2**62)]


def test_deduplication_survives_a_restart_but_for_transient_numbers(harness: Harness) -> None:
    """P10: durable numbers stay; transient ones lost in a restart are handled afresh."""
    harness.declare_filled("q", 1)
    harness.publish_to("q", 1, persistent=False)
    harness.restart()
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    harness.publish_to("q", 2, numbers=[1, 2])
    assert harness.browse("q") == ["m1", "m2"]


def test_a_persistent_message_in_a_non_durable_queue_is_a_transient_number(
    harness: Harness,
) -> None:
    """P5, P10: the message is lost in a restart, so a retransmission is not confirmed as placed."""
    harness.declare("kept")
    harness.declare("lost", durable=False)
    harness.publish(["kept", "lost"])
    harness.restart()
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    reply = harness.publish(["kept", "lost"], numbers=[1, 2])
    assert list(reply.returned) == [2]
    assert harness.ready("kept") == 1


def test_a_number_in_progress_is_not_handled_again(harness: Harness) -> None:
    """P10: its answer is on its way, so it is left alone, although it is routable by now."""
    first = harness.publish(["late", "q"], numbers=[1, 2])
    assert list(first.returned) == [1, 2]
    harness.declare("late", "q")
    again = replace(
        harness.command(["late", "q", "late"], numbers=[1, 2, 3]), in_progress=BitMap64([1, 2])
    )
    assert list(harness.do(again).confirmed) == [3]
    assert (harness.ready("late"), harness.ready("q")) == (1, 0)
    only = replace(again, in_progress=BitMap64([1, 2, 3]))
    assert harness.decide(only) == c.Decision((), c.Published(BitMap64(), BitMap64()))


def test_a_forgotten_publisher_is_refused(harness: Harness) -> None:
    """P10: the state is deleted seven days after the last stream; a resume is refused then."""
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(7 * DAY_US - 10)
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.housekeep_after(7 * DAY_US + 10)
    with pytest.raises(PublisherForgottenError, match="outcome of its unconfirmed publishes"):
        harness.do(c.OpenPublisher(PUBLISHER, resume=True))
    with pytest.raises(PublisherForgottenError):
        harness.publish_to("q", 1)
    with pytest.raises(PublisherForgottenError):
        views.missing(harness.core.state, PUBLISHER, 1, 1)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_publisher_that_is_finished_is_forgotten_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    """P10, I6: a publisher with all answers leaves no state, so no bound is ever reached."""
    monkeypatch.setattr("ackq.limits.MAX_PUBLISHERS", 2)
    before = harness.core._state.publishers.keys()
    for number in range(10):
        name = f"{number}".encode().ljust(16)
        harness.do(c.OpenPublisher(name, transactional=transactional))
        harness.do(c.ClosePublisherStream(name, finished=True))
        assert harness.core._state.publishers.keys() == before == {PUBLISHER}
        with pytest.raises(PublisherForgottenError, match="it was closed"):
            harness.do(c.OpenPublisher(name, resume=True, transactional=transactional))
        harness.do(c.ClosePublisherStream(name, finished=True))
    harness.do(c.OpenPublisher(b"cut".ljust(16)))
    harness.do(c.ClosePublisherStream(b"cut".ljust(16)))
    with pytest.raises(LimitError, match="close publishers"):
        harness.do(c.OpenPublisher(b"other".ljust(16)))


def test_an_open_publisher_is_never_forgotten(harness: Harness) -> None:
    """P10: the seven days begin when the last stream ends."""
    harness.housekeep_after(30 * DAY_US)
    harness.do(c.OpenPublisher(PUBLISHER, resume=True))


def test_a_restart_ends_all_streams(harness: Harness) -> None:
    """P10: publishers that do not return after a restart are forgotten in time."""
    harness.restart()
    harness.housekeep_after(7 * DAY_US + 10)
    with pytest.raises(PublisherForgottenError):
        harness.do(c.OpenPublisher(PUBLISHER, resume=True))


def test_opening_twice_is_one_publisher(harness: Harness) -> None:
    """P10: an open that is repeated because its answer was lost changes nothing."""
    assert harness.decide(c.OpenPublisher(PUBLISHER)).records == ()


def test_the_number_of_publishers_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: a new publisher over the limit is refused; a known one opens again."""
    monkeypatch.setattr("ackq.limits.MAX_PUBLISHERS", 1)
    with pytest.raises(LimitError, match="1 publishers"):
        harness.do(c.OpenPublisher(b"other".ljust(16)))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.do(c.ClosePublisherStream(PUBLISHER))
    harness.do(c.OpenPublisher(PUBLISHER))


def test_a_block_lives_as_long_as_any_queue_has_a_row_of_it(harness: Harness) -> None:
    """I4: a block is dead only when its last message is removed."""
    harness.declare("a", "b")
    reply = harness.publish(["a", "b", "a"])
    harness.do(c.PurgeQueue("a"))
    assert harness.core.drain_dead_blocks() == []
    assert list(views.live_blocks(harness.core.state)) == [reply.block_id]
    harness.do(c.PurgeQueue("b"))
    assert harness.core.drain_dead_blocks() == [reply.block_id]
    assert harness.core.drain_dead_blocks() == []
    assert views.live_blocks(harness.core.state) == BitMap64()


def test_drop_head_gives_up_the_oldest_ready_messages(harness: Harness) -> None:
    """Q3: rows of the block being placed are dropped, too, when it is longer than the queue."""
    harness.declare_filled("q", 2, max_length=3, overflow="drop-head")
    harness.publish_to("q", 2)
    assert harness.browse("q") == labels(2, 4)
    harness.publish_to("q", 5)
    assert harness.browse("q") == labels(7, 9)


def test_drop_head_by_bytes(harness: Harness) -> None:
    """Q3: as many messages are dropped from the head as the bound needs."""
    harness.declare("q", max_bytes=50, overflow="drop-head")
    harness.publish_to("q", 2, row_bytes=10)
    harness.publish_to("q", 2, row_bytes=20)
    assert harness.browse("q") == labels(2, 4)
    harness.publish_to("q", 1, row_bytes=1000)
    assert harness.browse("q") == []


def test_drop_head_never_drops_leased_messages(harness: Harness) -> None:
    """Q3, S7: a leased message stays and displaces no newcomer: bounds are on ready messages."""
    harness.declare_filled("q", 2, max_length=3, overflow="drop-head")
    reader = harness.lease("q")
    harness.publish_to("q", 3)
    assert reader.fetch(0, 2) == labels(1, 2)
    assert harness.browse("q") == labels(1, 5)
    harness.publish_to("q", 1)
    assert harness.browse("q") == ["m1", "m2", *labels(4, 6)]
