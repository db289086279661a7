"""Operators of links: their calls, and the figures that they see (L25, L26)."""

import pytest

from ackq.errors import InUseError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, Harness
from tests.unit.core.link_process import SOURCE, LinkProcess, accept


def test_a_link_with_settled_messages_stays(process: LinkProcess) -> None:
    """L25: settled messages that were never permitted would be stored again as new."""
    harness = process.harness
    process.store(["a", "b"])
    process.subscribe()
    accept(harness, 1, 2)
    with pytest.raises(InUseError, match=r"0 messages of it are not settled .* 2 acknowledgements"):
        harness.do(c.RemoveLink("l"))
    assert harness.do(c.RemoveLink("l", forget=True)) == c.RemovedLink(0, 2)


def test_a_drained_link_is_removed(process: LinkProcess) -> None:
    """L25: unless it runs; proven entries that are kept for a while do not keep it."""
    harness = process.harness
    process.store(["a"])
    accept(process.harness, 1)
    process.permit()
    process.prove(1)
    assert process.info().tombstones == 1
    assert [harness.do(c.PauseLink("l", paused=True)) for _ in range(2)] == [True, False]
    assert process.open().paused
    with pytest.raises(InUseError, match="run by host-a"):
        harness.do(c.RemoveLink("l", incumbent_live=True))
    assert process.harness.do(c.RemoveLink("l")) == c.RemovedLink(0, 0)
    assert views.list_links(process.harness.core.state) == []


def test_what_did_not_come_again(process: LinkProcess) -> None:
    """L18: counts held messages that were not redelivered; settled ones are not missed."""
    process.store(["a", "b", "c", "d"])
    assert views.link_missing(process.harness.core.state, "l") == 0
    accept(process.harness, 1)
    process.permit()
    process.subscribe()
    assert views.link_missing(process.harness.core.state, "l") == 3
    process.store(["c"])
    assert views.link_missing(process.harness.core.state, "l") == 2
    accept(process.harness, 2)
    assert views.link_missing(process.harness.core.state, "l") == 1
    assert views.link_missing(process.harness.core.state, "another") == 0


def test_what_operators_see(harness: Harness) -> None:
    """L26: operators see all links by name, or one."""
    harness.declare("q", "r")
    LinkProcess(harness, "z", queue="r", ack=c.LinkAck.STORED)
    process = LinkProcess(harness, "a")
    process.subscribe()
    process.store(["1", "2", "3"])
    stored_us = harness.now_us
    accept(harness, 1, 2)
    process.permit()
    process.prove(2)
    accept(harness, 3)
    process.store(["4"])
    held_us = harness.now_us
    assert [each.link for each in views.list_links(harness.core.state)] == ["a", "z"]
    assert views.list_links(harness.core.state, "z")[0].queue == "r"
    assert stored_us < held_us
    assert views.link_info(harness.core.state, "a") == c.LinkInfo(
        link="a",
        incarnation="a" * 32,
        epoch=1,
        holder=ALICE,
        source=SOURCE,
        queue="q",
        ack=c.LinkAck.SETTLED,
        paused=False,
        opened_us=process.info().opened_us,
        subscription=1,
        held=1,
        settled=1,
        unproven=0,
        in_doubt=0,
        tombstones=3,
        oldest_held_us=held_us,
        taken=4,
        stored=4,
        matched_held=0,
        matched_settled=0,
        ambiguous=0,
        id_reused=0,
        permitted=2,
        proven=2,
        rejected=0,
    )
