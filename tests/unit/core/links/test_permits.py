"""Permits and their proofs (L9, L10); when entries are forgotten: `test_deliveries_model`."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_broker.core import commands as c
from ackq_broker.core import records
from ackq_broker.core.state import link as link_state
from tests.unit.core.harness import SECOND_US
from tests.unit.core.link_process import LinkProcess, accept


def test_no_record_without_a_change(process: LinkProcess) -> None:
    """I5, L9, L10: nothing to permit, once more, or a row of another publisher, is no record."""
    process.harness.publish_to("q", 1)
    process.store(["a"])
    command = c.PermitLinked("l", 1, process.subscription)
    accept(process.harness, 1)
    assert process.harness.decide(command).records == ()
    accept(process.harness, 2)
    decision = process.harness.decide(command)
    assert decision.reply.positions.tolist() == [2]
    assert [type(record) for record in decision.records] == [records.LinkPermitted]
    assert process.harness.decide(command).records == ()


def test_a_minimum_above_the_window_waits_no_longer_than_its_time(process: LinkProcess) -> None:
    """L9, L21: a full window is leased when its oldest message is due, and settled once proven."""
    wish = {"min_messages": 5, "max_delay_ms": 1_000}
    process.store(["a", "b", "c"])  # the link's window
    reader = process.harness.lease("q", **wish)
    assert reader.advance(0, **wish).end_tag == 0
    process.harness.now_us += SECOND_US
    assert reader.advance(0, **wish).end_tag == 3
    assert process.permit() == []
    reader.advance(3, **wish)
    assert process.permit() == [1, 2, 3]


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


def test_more_than_was_permitted_cannot_be_proven(process: LinkProcess) -> None:
    """L10: a link that counts wrong is refused, and no entry is forgotten for it."""
    process.store(["a"])
    process.proven = 1
    for call in (process.permit, lambda: process.store(["b"])):
        with pytest.raises(InvalidArgumentError, match=r"1 acknowledgements .* 0 were permitted"):
            call()


def test_a_proof_names_its_last_delivery(process: LinkProcess) -> None:
    """L10: a link that lacks permits counts later ones in their place, and is refused."""
    process.store(["a", "b", "c", "d"])
    accept(process.harness, 1, 2)
    process.permit()  # the answer is lost, and the link does not know it
    accept(process.harness, 3, 4)
    process.permit()
    for number in (3, 4, 5, 0):
        wrong = {"proven": 2, "proven_number": number}
        refusal = f"for delivery {number}, .* a permit did not reach"
        with pytest.raises(InvalidArgumentError, match=refusal):
            process.permit(**wrong)
        with pytest.raises(InvalidArgumentError, match=refusal):
            process.store(["e"], **wrong)
    assert process.info().proven == 0
    process.permit(proven=2, proven_number=1)
    assert process.info().proven == 2


def test_permits_are_joined_when_they_are_many(process: LinkProcess, monkeypatch) -> None:
    """I6, L10: batches are joined by twos, so that a proof only takes effect a little later."""
    monkeypatch.setattr(link_state, "_MOST_BATCHES", 4)
    process.store(map(str, range(11)))
    for position in range(1, 12):
        accept(process.harness, position)
        process.permit()
    assert len(process.state().batches[0].positions) > 1
    assert len(process.state().batches) <= 4
    process.prove(11)
    assert process.info().proven == 11
