"""Permits, their proofs, and when an entry is forgotten (L9, L10)."""

import numpy as np
import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c
from ackq_broker.core.state import link as link_state
from tests.unit.core.harness import DAY_US, SECOND_US, Harness
from tests.unit.core.link_process import LinkProcess, accept

GRACE_US = limits.LINK_ACK_GRACE_S * SECOND_US
DOUBT_US = limits.LINK_DOUBT_S * SECOND_US


def test_what_is_settled_is_permitted_once(process: LinkProcess) -> None:
    """L9: accepted, rejected and dropped messages; ready, delayed and unacked ones are held."""
    harness = process.harness
    process.store(["a", "b", "c", "d", "e"])
    assert process.permit() == []
    accept(harness, 2)
    harness.deliver("channel", "q", 3)
    harness.settle("channel", Outcome.REJECTED, 1)
    harness.settle("channel", Outcome.RELEASED, 2, delay_ms=60_000)
    assert process.permit() == [1, 2]
    assert process.permit() == []
    info = process.info()
    assert (info.held, info.settled, info.unproven, info.tombstones) == (3, 0, 2, 2)
    assert info.oldest_held_us


def test_no_record_without_a_change(process: LinkProcess) -> None:
    """I5, L10: a permit call without a new permit writes no record."""
    process.store(["a"])
    command = c.PermitLinked("l", 1, process.subscription)
    assert process.harness.decide(command).records == ()
    accept(process.harness, 1)
    (record,) = process.harness.decide(command).records
    assert isinstance(record, records.LinkPermitted)
    assert process.harness.decide(command).records == ()


def test_a_row_of_another_publisher_is_no_affair_of_a_link(process: LinkProcess) -> None:
    """L9: only deliveries of the link get a permit."""
    process.harness.publish_to("q", 2)
    process.store(["a"])
    accept(process.harness, 1, 2, 3)
    assert process.permit() == [3]


def test_a_message_kept_for_a_replay_is_settled(process: LinkProcess) -> None:
    """L9: a message is settled when its checkpoint covers it, also while it can be replayed."""
    process.store(["a", "b"])
    reader = process.harness.lease("q", max_messages=2)
    assert process.permit() == []
    reader.advance(2)
    assert process.permit() == [1, 2]


def test_a_minimum_above_the_window_waits_no_longer_than_its_time(process: LinkProcess) -> None:
    """L21: a full window brings no more messages, and is leased when its oldest one is due."""
    wish = {"min_messages": 5, "max_delay_ms": 1_000}
    process.store(["a", "b", "c"])  # the link's window
    reader = process.harness.lease("q", **wish)
    assert reader.advance(0, **wish).end_tag == 0
    assert process.permit() == []
    process.harness.now_us += SECOND_US
    assert reader.advance(0, **wish).end_tag == 3
    reader.advance(3, **wish)
    assert process.permit() == [1, 2, 3]


def test_permits_are_told_again(process: LinkProcess) -> None:
    """L10: a stream that may have lost permits gets them again, in order, until they are proven."""
    process.store(["a", "b", "c", "d"])
    accept(process.harness, 3)
    assert process.permit() == [3]
    accept(process.harness, 1, 2)
    assert process.permit() == [1, 2]
    process.proven = 1
    accept(process.harness, 4)
    assert process.permit(again=True) == [1, 2, 4]
    assert process.permit(again=True) == [1, 2, 4]


def test_what_was_told_again_is_proven_together(process: LinkProcess) -> None:
    """L10: the link may have settled them in any order, so a part of them proves nothing."""
    process.store(["a", "b", "c"])
    accept(process.harness, 3)
    process.permit()
    accept(process.harness, 1)
    process.permit()
    assert process.permit(again=True) == [3, 1]
    process.prove(1)
    assert process.info().unproven == 2
    process.prove(1)
    assert process.info().unproven == 0


def test_a_batch_is_proven_whole(process: LinkProcess) -> None:
    """L10: the order within a record is not sent, so a part of a batch proves nothing."""
    process.store(["a", "b", "c"])
    accept(process.harness, 1, 2)
    process.permit()
    accept(process.harness, 3)
    process.permit()
    process.prove(1)
    assert process.info().proven == 0
    process.prove(1)
    assert (process.info().proven, process.info().unproven) == (2, 1)
    process.store(["d"], proven=3, proven_number=3)
    assert process.info().unproven == 0


def test_more_than_was_permitted_cannot_be_proven(process: LinkProcess) -> None:
    """L10: a link that counts wrong is refused, and no entry is forgotten for it."""
    process.store(["a"])
    process.proven = 1
    with pytest.raises(InvalidArgumentError, match=r"1 acknowledgements .* 0 were permitted"):
        process.permit()
    with pytest.raises(InvalidArgumentError, match="0 were permitted"):
        process.store(["b"])


def test_a_proof_names_its_last_delivery(process: LinkProcess) -> None:
    """L10: a link that lacks permits counts later ones in their place, and is refused."""
    process.store(["a", "b", "c", "d"])
    accept(process.harness, 1, 2)
    process.permit()  # the answer is lost, and the link does not know it
    accept(process.harness, 3, 4)
    process.permit()
    for number in (3, 4, 5, 0):
        wrong = {"proven": 2, "proven_number": number}
        with pytest.raises(
            InvalidArgumentError, match=f"for delivery {number}, .* a permit did not reach"
        ):
            process.permit(**wrong)
        with pytest.raises(InvalidArgumentError, match="a permit did not reach"):
            process.store(["e"], **wrong)
    assert process.info().proven == 0
    process.permit(proven=2, proven_number=1)
    assert process.info().proven == 2


def test_a_proven_entry_is_forgotten_by_later_proofs(process: LinkProcess) -> None:
    """L10: entries are forgotten by later proofs alone, as a dying node takes back the last ones.

    While the node is down no acknowledgement is proven, so no entry is forgotten, however long that
    takes.
    """
    harness = process.harness
    process.store(["a", "b"])
    accept(harness, 1, 2)
    process.permit()
    process.prove(2)
    harness.now_us += 100 * GRACE_US
    process.permit()
    assert process.info().tombstones == 2
    process.subscribe()
    harness.now_us += GRACE_US
    assert process.matched(["a", "c"]) == [True, False]
    process.permit()
    process.prove(1)
    assert process.info().tombstones == 2
    accept(harness, 3)
    process.permit()
    process.prove(1)
    assert process.info().tombstones == 2
    assert process.matched(["b"]) == [False]


def test_a_late_proof_of_an_early_permit_forgets_nothing(process: LinkProcess) -> None:
    """L10: it may arrive long after the remote node applied the acknowledgement, and went down."""
    harness = process.harness
    process.store(["a", "b"])
    for position in (1, 2):
        accept(harness, position)
        process.permit()
    process.prove(1)
    harness.now_us += 2 * GRACE_US
    process.prove(1)
    assert process.info().tombstones == 2
    process.subscribe()
    assert process.matched(["a", "b"]) == [True, True]


def test_a_frame_may_match_what_its_proof_forgets(process: LinkProcess) -> None:
    """L5, L10: a matched entry is bound before any entry is forgotten."""
    harness = process.harness
    process.store(["a", "b"])
    accept(harness, 1, 2)
    process.permit()
    process.prove(2)
    process.subscribe()
    harness.now_us += GRACE_US
    process.store(["x"])
    accept(harness, 3)
    harness.now_us += 2 * GRACE_US
    process.permit()
    process.proven = 1
    assert process.matched(["a"]) == [True]
    assert list(process.state().entries.positions) == [1, 3]


def test_the_first_messages_of_a_subscription_forget_nothing(process: LinkProcess) -> None:
    """L10: messages of a connection that ended unseen come after them, once its end is noticed."""
    harness = process.harness
    process.store(["a", "b", "c"])
    accept(harness, 1, 2, 3)
    process.permit()
    process.prove(3)
    harness.now_us += 100 * GRACE_US
    process.subscribe()
    for count, name in enumerate(("x", "y"), 1):
        (position,) = process.positions([name])
        accept(harness, position)
        harness.now_us += GRACE_US // 2 + SECOND_US
        process.permit()
        process.prove(1)
        assert process.info().tombstones == 3 + count
    assert process.matched(["a"]) == [True]
    (position,) = process.positions(["z"])
    accept(harness, position)
    process.permit()
    process.prove(2)
    assert process.matched(["b"]) == [False]


def test_a_proven_entry_stays_for_a_while(process: LinkProcess) -> None:
    """L10: an entry stays for the grace period, whatever else is proven meanwhile."""
    harness = process.harness
    for position, name in enumerate("abc", 1):
        process.store([name])
        accept(harness, position)
        process.permit()
        process.prove(1)
        harness.now_us += GRACE_US // 2 + SECOND_US
    assert process.info().tombstones == 2


def test_what_is_in_doubt_waits_for_the_link(process: LinkProcess) -> None:
    """L10: an entry in doubt stays until a batch of fresh messages is proven.

    Neither a day nor a new subscription is enough: the proof shows that all redeliveries have come.
    """
    harness = process.harness
    process.store(["a", "b", "c"])
    accept(harness, 1)
    process.permit()
    process.subscribe()
    harness.now_us += 30 * DAY_US
    process.subscribe()
    harness.now_us += GRACE_US
    process.store(["b"])
    accept(harness, 2)
    process.permit()
    process.prove(1)
    assert process.info().in_doubt == 1
    process.store(["x"])
    accept(harness, 3, 4)
    process.permit()
    process.prove(1)
    assert process.info().tombstones == 2
    assert process.info().in_doubt == 0
    process.state()


def test_what_is_in_doubt_waits_for_a_day(process: LinkProcess) -> None:
    """L10: another consumer may hold its redelivery; and a held message is never forgotten."""
    harness = process.harness
    process.store(["a", "b", "c"])
    accept(harness, 1, 2)
    assert process.permit() == [1, 2]
    process.subscribe()
    for name in ("x", "y"):
        (position,) = process.positions([name])
        accept(harness, position)
        process.permit()
        process.prove(1)
        harness.now_us += DOUBT_US // 2
        process.permit()
        assert process.info().in_doubt == 2
    harness.now_us += 3_600 * SECOND_US
    process.permit()
    process.store(["z"])
    info = process.info()
    assert (info.in_doubt, info.tombstones, info.held) == (0, 1, 2)
    process.subscribe()
    assert process.matched(["c", "a"]) == [True, False]


def test_a_stored_and_proven_message_may_stay_in_the_queue(harness: Harness) -> None:
    """L9, I6: with `ack=stored` a proof forgets an entry, however long its message stays."""
    harness.declare("q")
    process = LinkProcess(harness, ack=c.LinkAck.STORED)
    process.subscribe()
    process.store(["a", "b"])
    process.prove(2)
    assert process.info().held == 0
    harness.now_us += GRACE_US + 2 * SECOND_US
    process.store(["c"])
    process.prove(1)
    assert len(process.state().entries) == 1
    assert harness.ready("q") == 3


def test_permits_are_joined_when_they_are_many(
    process: LinkProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6, L10: batches are joined by twos, so that a proof only takes effect a little later."""
    monkeypatch.setattr(link_state, "_MOST_BATCHES", 4)
    process.store([str(number) for number in range(11)])
    for position in range(1, 12):
        accept(process.harness, position)
        process.permit()
    assert len(process.state().batches[0].positions) > 1
    assert len(process.state().batches) <= 4
    process.prove(11)
    assert process.info().proven == 11


def test_a_link_that_answers_in_another_order(process: LinkProcess) -> None:
    """L10: positions come as an array in the order of their permits."""
    process.store(["a", "b"])
    accept(process.harness, 2)
    process.permit()
    accept(process.harness, 1)
    reply = process.harness.do(c.PermitLinked("l", 1, process.subscription, again=True))
    assert reply.positions.dtype == np.uint64
    assert reply.positions.tolist() == [2, 1]
    assert reply.held == 0


def test_a_link_goes_on_after_any_record(process: LinkProcess) -> None:
    """I2, L10: replay from a snapshot at any record gives the same state."""
    harness = process.harness
    for round_ in range(3):
        process.store(["a", "a", f"b{round_}", f"c{round_}"])
        held = harness.core._state.queues[views.queue_ids(harness.core.state)["q"]].ready
        accept(harness, *held[:3])
        process.permit()
        process.prove(process.info().unproven - process.info().in_doubt)
        process.store(["r"], content=True, redelivered=True)
        if round_:
            harness.now_us += DAY_US
        process.subscribe()
        process.store([f"c{round_}", "a"], redelivered=True)
        process.state()
    expected = harness.core.snapshot()
    core = Core()
    for sequence, record in enumerate(harness.log, 1):
        core.apply(sequence, record)
        core = Core.restore(core.snapshot())
    assert core.snapshot() == expected
    assert BitMap64(core._state.links["l"].entries.positions)
