"""Outcomes from a query (S6): staged and committed, by epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackq.errors import (
    LimitError,
    PreconditionFailedError,
    SessionNotFoundError,
    StageMismatchError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core.sessions import outcomes
from tests.unit.core.harness import BOB, BY_NAME, Harness, Reader, counts, group, reading

REJECTED, FAILED, RELEASED, ACCEPTED = (
    Outcome.REJECTED,
    Outcome.FAILED,
    Outcome.RELEASED,
    Outcome.ACCEPTED,
)
reader = pytest.fixture(reading)


# --- epochs ---


def test_a_call_without_bad_rows_takes_back_an_older_epoch_s(
    harness: Harness, reader: Reader
) -> None:
    """S6: the newer run wrote every row, so none may be a dead letter as well."""
    reader.say(group(REJECTED, 2))
    assert reader.commit() == c.CommittedOutcomes(0, False)
    assert reader.info().settled == 1  # the outcome of its own epoch
    reader.run_again()
    assert reader.commit(owner=reader.owner(run_id="second")) == c.CommittedOutcomes(0, False)
    assert reader.info().settled == 0
    reader.advance(6)
    assert harness.browse("dead") == []
    assert counts(harness)[3] == 6


def test_a_foreign_call_without_rows_takes_nothing_back(reader: Reader) -> None:
    """S6: a program that names the session, and no query, is not known to read the lease."""
    reader.say(group(REJECTED, 2))
    reader.advance(0, holder=BOB)
    assert reader.commit(owner=BY_NAME) == c.CommittedOutcomes(0, False)
    assert reader.info().settled == 1
    named = reader.owner(run_id="second")._replace(session="s")
    assert reader.commit(owner=named) == c.CommittedOutcomes(0, False)
    assert reader.info().settled == 0


def test_stages_go_with_the_accept_and_the_incarnation(harness: Harness, reader: Reader) -> None:
    """S6: a stage without a commit has no effect, and is dropped."""
    first = reader.stage("a", group(REJECTED, 2))
    reader.advance(6, max_messages=2)
    reader.note(batch_id=8)
    second = reader.stage("b", group(REJECTED, 7), owner=reader.owner(batch_id=8))
    harness.do(c.ReleaseSession("s"))
    assert harness.do(c.AbortOutcomes((first[0], second[0]))) == 0
    assert harness.browse("dead") == []
    with pytest.raises(SessionNotFoundError, match="the option session"):
        reader.commit(second, owner=reader.owner(batch_id=8))


# --- stages and commits ---


def test_repeating_is_a_success(harness: Harness, reader: Reader) -> None:
    """S6: a stage or a commit is repeated, before and after a restart."""
    stage = reader.stage("a", group(REJECTED, 2, 3))
    assert reader.stage("a", group(REJECTED, 2, 3)) == stage
    reader.commit(stage)
    harness.restart()
    records = len(harness.log)
    assert reader.stage("a", group(REJECTED, 2, 3)) == stage
    assert reader.commit(stage) == c.CommittedOutcomes(2, False)
    assert len(harness.log) == records


def test_a_commit_is_whole_or_nothing(harness: Harness, reader: Reader) -> None:
    """S6: with one stage missing, short or named twice, no stage counts."""
    stage = reader.stage("a", group(REJECTED, 2))
    for wrong, why in (
        ((b"other".ljust(16), 1), "does not exist"),
        ((stage[0], 2), "has 1 tag, not 2"),
        (stage, "is named twice"),
    ):
        with pytest.raises(StageMismatchError, match=why):
            reader.commit(stage, wrong)
    assert reader.info().settled == 0
    reader.advance(6)
    assert harness.browse("dead") == []


def test_a_tag_outside_of_the_lease_is_refused(harness: Harness, reader: Reader) -> None:
    """S6: the error names the lowest such tag and the lease; a hole is inside and skipped."""
    reader.advance(6, max_messages=2)
    reader.note(batch_id=8)
    owner = reader.owner(batch_id=8)
    for tags, lowest in (((8, 9, 12), 9), ((3, 5, 8, 99), 3)):
        with pytest.raises(UnknownDeliveryTagError, match=rf"tag {lowest} .* \(6, 8\]"):
            reader.stage("a", group(REJECTED, *tags), owner=owner)
    harness.do(c.SettleLease("s", REJECTED, ((7, 7),)))
    reader.command = replace(reader.command, holder=BOB)
    reader.advance(6)
    reader.note(batch_id=8, run_id="second")
    owner = reader.owner(batch_id=8, run_id="second")
    reader.say(group(FAILED, 7, 8), owner=owner)
    assert reader.info().settled == 1
    reader.advance(8)
    assert harness.browse("dead") == ["m7"]
    assert counts(harness)[1] == 1


def test_what_a_lease_can_have_said_of_it_is_bounded(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: the stages of a lease are bounded, and so are its different outcomes."""
    monkeypatch.setattr(outcomes, "MAX_STAGES", 2)
    monkeypatch.setattr(outcomes, "MAX_TAG_OUTCOMES", 3)
    reader.say(group(REJECTED, 1), group(REJECTED, 2, reason="other"))
    with pytest.raises(LimitError, match="different outcomes"):
        reader.stage("a", group(RELEASED, 1), group(REJECTED, 2))
    reader.stage("b", group(RELEASED, 1))
    with pytest.raises(LimitError, match="stages"):
        reader.stage("c", group(RELEASED, 1))


def test_rejecting_without_a_dead_letter_queue(harness: Harness) -> None:
    """S6: refused unless the call has `discard`; then the messages are dropped."""
    harness.declare_filled("q", 3)
    reader = harness.lease("q")
    reader.note()
    with pytest.raises(PreconditionFailedError, match=r"2 messages of queue 'q' .* discard"):
        reader.stage("a", group(REJECTED, 1, 2), group(RELEASED, 3))
    reader.say(group(REJECTED, 1, 2), discard=True)
    before = reader.rows(0, 3)
    reader.advance(3)
    assert (harness.info("q").dropped, counts(harness)) == (2, (0, 0, 0, 1))
    assert reader.rows(0, 3) == before
