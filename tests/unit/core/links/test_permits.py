"""Permits and their proofs (L9, L10); when entries are forgotten: `test_deliveries_model`."""

from ackq.errors import InvalidArgumentError
from ackq_broker.core.state import link as link_state
from tests.unit.core.harness import SECOND_US, refused
from tests.unit.core.link_process import accept


def test_a_minimum_above_the_window_waits_no_longer_than_its_time(process):
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


def test_a_proof_names_its_last_delivery(process):
    """L10: a link that lacks permits counts later ones in their place, and is refused."""
    process.store(["a", "b", "c", "d"])
    accept(process.harness, 1, 2)
    process.permit()  # the answer is lost, and the link does not know it
    accept(process.harness, 3, 4)
    process.permit()
    for number in (3, 4, 5, 0):
        wrong = {"proven": 2, "proven_number": number}
        refusal = f"for delivery {number}, .* a permit did not reach"
        refused(InvalidArgumentError, refusal, process.permit, **wrong)
        refused(InvalidArgumentError, refusal, process.store, ["e"], **wrong)
    told = r"5 acknowledgements .* 4 were permitted"
    refused(InvalidArgumentError, told, process.permit, proven=5, proven_number=4)
    assert process.info().proven == 0
    process.permit(proven=2, proven_number=1)
    assert process.info().proven == 2


def test_permits_are_joined_when_they_are_many(process, monkeypatch):
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
