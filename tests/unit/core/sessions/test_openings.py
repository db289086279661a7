"""Openings of a session (S9): replacements, refusals and warnings."""

from dataclasses import replace
from typing import Any

import pytest

from ackq.errors import (
    AlreadyHeldError,
    InvalidArgumentError,
    LeaseHeldError,
    LimitError,
    SessionNotFoundError,
)
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, DAY_US, Harness, Reader, labels


def test_a_start_that_names_the_incarnation_proves_it(reader: Reader) -> None:
    """S9: the checkpoint is known to exist from then on."""
    reader.advance(0, max_messages=1)
    assert reader.info().proven is True


def test_a_replay_proves_it_too(harness: Harness) -> None:
    """S9: the tags of a replay come from a checkpoint, too."""
    harness.declare_filled("q", 3)
    reader = harness.open("q", open_and_lease=True)
    reader.attach(0, 3)
    assert reader.info().proven is True


def test_an_opening_says_what_it_cannot_put_back(harness: Harness, reader: Reader) -> None:
    """Q4, S9: leased messages of a deleted queue are not redelivered, and the warning says so."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"), max_messages=4)
    harness.do(c.DeleteQueue("q", force=True))
    with pytest.raises(LeaseHeldError, match="4 messages"):
        harness.open("r", holder=BOB)
    (warning,) = harness.open("r", holder=BOB, takeover=True).reply.warnings
    assert "0 messages leased under its" in warning
    assert "; 4 of deleted queues were dropped." in warning


def test_an_unproven_lease_goes_back_and_into_the_new_lease(harness: Harness) -> None:
    """S9: a repeated opening of Trigger.Once leases the same messages again."""
    harness.declare_filled("q", 3)
    harness.open("q", open_and_lease=True)
    again = harness.open("q", open_and_lease=True, holder=BOB)
    assert again.fetch(0, 3) == labels(1, 3)
    assert again.reply.backlog == c.Backlog(0, 3, again.reply.backlog.oldest_us, 3)
    assert "3 messages leased under its incarnation" in again.reply.warnings[0]
    assert again.pieces(0, 3)[0].runs == (c.Run(1, 3, 2),)


def test_a_proven_incarnation_without_lease_is_replaced_with_a_warning(
    harness: Harness, reader: Reader
) -> None:
    """S9: the old checkpoint is refused from then on, and a warning reports it."""
    reader.advance(0)
    reader.advance(10)
    second = harness.open("q", holder=BOB)
    (warning,) = second.reply.warnings
    assert reader.command.incarnation in warning
    with pytest.raises(SessionNotFoundError, match="new checkpoint"):
        reader.advance(10)


def test_takeover_puts_a_proven_lease_back(harness: Harness, reader: Reader) -> None:
    """S9: with `takeover` the user accepts duplicates."""
    reader.advance(0, max_messages=4)
    second = harness.open("q", holder=BOB, takeover=True)
    assert harness.ready("q") == 10
    assert "4 messages" in second.reply.warnings[0]
    with pytest.raises(SessionNotFoundError, match="replaced"):
        reader.fetch(0, 4)


def test_takeover_does_not_end_a_live_query(harness: Harness, reader: Reader) -> None:
    """S3, K10: only an operator's fence ends a live query."""
    reader.advance(0)
    with pytest.raises(AlreadyHeldError, match="--fence"):
        harness.open("q", holder=BOB, takeover=True, incumbent_live=True)


def test_an_opening_names_no_tag(harness: Harness) -> None:
    """S9: a tag without an incarnation belongs to no session."""
    harness.declare("q")
    command = c.Advance("s", "", ALICE, ("q",), 5, new_incarnation="0" * 32)
    with pytest.raises(InvalidArgumentError, match="tag 5 and no incarnation"):
        harness.do(command)


def test_unproven_sessions_without_owner_and_lease_are_removed_after_a_day(
    harness: Harness,
) -> None:
    """S9: live and proven sessions stay, and those that hold a lease."""
    harness.declare_filled("q", 1)
    gone = harness.open("q", session="gone")
    harness.open("q", session="live")
    harness.open("q", session="proven").advance(0)
    harness.publish_to("q", 1)
    harness.open("q", session="once", open_and_lease=True)
    harness.now_us += DAY_US - 100
    assert harness.decide(c.Housekeep()).records == ()
    harness.now_us += 200
    harness.do(c.Housekeep(frozenset({"live"})))
    assert [s.session for s in views.list_sessions(harness.core.state)] == [
        "live",
        "once",
        "proven",
    ]
    with pytest.raises(SessionNotFoundError, match="no checkpoint came back"):
        gone.advance(1)


def forgotten(harness: Harness, **opening: Any) -> Reader:
    """A reader whose session leased no message, and was forgotten."""
    harness.declare("q")
    reader = harness.open("q", **opening)
    harness.housekeep_after(DAY_US + 100)
    assert views.list_sessions(harness.core.state) == []
    return reader


def anew(reader: Reader, number: int = 99, **changes: Any) -> c.Advanced:
    """Starts at tag 0 of the reader's incarnation; a new incarnation may be opened."""
    return reader.advance(0, new_incarnation=f"{number:032x}", **changes)


@pytest.mark.parametrize("session", ["s", ""], ids=["named", "anonymous"])
def test_tag_0_of_a_forgotten_incarnation_opens_anew(harness: Harness, session: str) -> None:
    """S9: nothing was accepted, so a query without messages for a day continues."""
    reader = forgotten(harness, session=session, open_and_lease=True)
    old = reader.reply
    reader.command = replace(reader.command, session=old.session)
    harness.publish_to("q", 3)
    reply = anew(reader, holder=BOB, max_messages=2)
    assert (reply.session, reply.incarnation, reply.end_tag) == (old.session, f"{99:032x}", 2)
    assert "opened again" in reply.warnings[0]
    assert reader.info().proven
    reader.command = replace(reader.command, incarnation=reply.incarnation, holder=BOB)
    assert reader.fetch(0, 2) == labels(1, 2)
    assert reader.advance(2).end_tag == 3


def test_a_successor_is_never_forgotten_and_ends_with_what_it_succeeds(harness: Harness) -> None:
    """S9: a checkpoint named it, so it stays; a released one is refused under both names."""
    reader = forgotten(harness)
    assert anew(reader).end_tag == 0
    harness.now_us += 30 * DAY_US
    assert harness.decide(c.Housekeep()).records == ()
    harness.do(c.ReleaseSession("s"))
    for incarnation in (reader.command.incarnation, reader.reply.incarnation):
        reader.command = replace(reader.command, incarnation=incarnation)
        with pytest.raises(SessionNotFoundError, match="released by an operator"):
            anew(reader, 98)


def test_the_memory_of_ended_incarnations_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: the oldest incarnation is forgotten and then unknown."""
    monkeypatch.setattr("ackq_broker.core.sessions.advance.MAX_ENDED", 1)
    harness.declare("q")
    first, second, _ = (harness.open("q") for _ in range(3))
    with pytest.raises(SessionNotFoundError, match="replaced"):
        second.advance(0)
    with pytest.raises(SessionNotFoundError, match="history history"):
        first.advance(0)


def test_the_number_of_sessions_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: a session can still be replaced at the limit."""
    monkeypatch.setattr("ackq.limits.MAX_SESSIONS", 1)
    harness.declare("q")
    harness.open("q")
    harness.open("q")
    with pytest.raises(LimitError, match="1 sessions"):
        harness.open("q", session="t")


def test_an_anonymous_session_gets_a_name(harness: Harness) -> None:
    """S9: the name is made of the incarnation, so anonymous sessions never share one."""
    harness.declare("q")
    harness.publish_to("q", 2)
    for number in (1, 2):
        reader = harness.open("q", session="")
        name = f"anonymous-{number:032x}"
        assert reader.reply.session == name
        assert reader.advance(0, session="", max_messages=1).session == name
    assert len(views.list_sessions(harness.core.state)) == 2
