"""Advance, attach and openings (S2-S4, S8, S9): holders, checkpoints, warnings and refusals."""

from dataclasses import replace
from functools import partial

import pytest

from ackq import errors
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, DAY_US, labels, refused


def sessions(harness):
    return [session.session for session in views.list_sessions(harness.core.state)]


@pytest.fixture
def third(reader):
    """The reader, of which two batches are accepted and the third, (4, 8], is outstanding."""
    for start, messages in ((0, 2), (2, 2), (4, 4)):
        reader.advance(start, max_messages=messages)
    return reader


def test_the_backlog_is_that_after_the_call(harness, reader):
    """S4: it has the ready, unacked and oldest messages after accept and lease."""
    harness.publish_to("q", 2)
    published_us = harness.now_us
    reader.advance(0, max_messages=10)
    assert reader.advance(10, max_messages=1).backlog == c.Backlog(1, 1, published_us, 0)
    assert (harness.ready("q"), harness.unacked("q")) == (1, 1)
    assert views.ready_total(harness.core.state, "s") == 1
    assert views.ready_total(harness.core.state, "unknown") == 0


@pytest.mark.parametrize(
    ("told", "tags"),
    [
        ("older than the accepted batches", [(0, 2), (3, 4), (2, 8), (0, 0)]),
        ("broker is older than the checkpoint", [(4, 9), (9, 0)]),
        (r"lease is \(4, 8\]", [(4, 7), (6, 8), (6, 0)]),
    ],
)
def test_tags_of_no_batch_are_refused(third, told, tags):
    """S2, S4: a replay, or a call of `advance` for `end` 0; the refusal has tags and cause."""
    for start, end in tags:
        advance = partial(third.advance, start, takeover=True)
        call = partial(third.attach, start, end) if end else advance
        fields = refused(errors.CheckpointMismatchError, told, call).fields
        named = (fields["start_tag"], fields["floor_tag"], fields["end_tag"])
        assert named == (str(start), "4", str(end or 8))


@pytest.mark.parametrize(("after", "last"), [(3, 9), (5, 9), (9, 8), (1, 3), (3, 6)])
def test_a_fetch_outside_the_lease_is_refused(third, after, last):
    """S2: only the outstanding and the kept lease can be read; the refusal names the first."""
    told = r"outstanding lease \(4, 8\]"
    refused(errors.CheckpointMismatchError, told, third.fetch, after, last)


# --- holders ---


def test_a_new_holder_fences_the_old_one(harness, reader):
    """S3: the epoch rises, and calls of the older one are refused; one of the future as well."""
    reader.advance(0, max_messages=4)
    assert reader.advance(0, holder=BOB).epoch == 2
    assert reader.fetch(0, 4) == labels(1, 4)
    error = refused(errors.FencedError, "host-b, pid 22", reader.pieces, 0, 4, epoch=1)
    assert error.fields["current_epoch"] == "2"
    check = partial(views.check_holder, harness.core.state, "s", reader.command.incarnation)
    check(2, BOB.token)
    for epoch in (1, 2):
        refused(errors.FencedError, "host-b", check, epoch, ALICE.token)
    older = "older than the reader"
    refused(errors.CheckpointMismatchError, older, reader.pieces, 0, 4, epoch=3)


def test_attaches_are_counted_per_lease(reader):
    """S8: each new holder of a lease counts; a new lease begins at one."""
    assert reader.advance(0, max_messages=4).attaches == 1
    assert reader.advance(0, holder=BOB).attaches == 2
    assert reader.attach(0, 4, holder=ALICE).attaches == 3
    assert reader.info().attaches == 3
    assert reader.advance(4, holder=BOB).attaches == 1


def test_the_service_learns_whom_a_call_would_meet(harness, reader):
    """S3: the incarnation and token by which the service tracks liveness."""
    state, incarnation = harness.core.state, reader.command.incarnation
    for name, which in (("s", ""), ("", incarnation)):
        assert views.incumbent(state, name, which) == (incarnation, ALICE.token)
    assert views.incumbent(state, "s", "unknown") is None
    assert views.incumbent(state, "unknown", "") is None


def test_a_live_holder_is_named(harness, reader):
    """S3, K10: another process is refused while the holder lives, an opening by takeover too."""
    reader.advance(0)
    meets = {"holder": BOB, "incumbent_live": True}
    told = r"host-a, pid 11 \(app-a\), since 2023-11-14T.*--fence"
    fields = refused(errors.AlreadyHeldError, told, reader.advance, 0, **meets).fields
    assert (fields["holder_host"], fields["holder_pid"]) == ("host-a", "11")
    refused(errors.AlreadyHeldError, told, reader.attach, 0, 10, **meets)
    for takeover in (False, True):
        refused(errors.AlreadyHeldError, told, harness.open, "q", takeover=takeover, **meets)


# --- openings ---


def test_a_start_and_a_replay_prove_the_incarnation(harness, reader):
    """S9: the checkpoint that they name is known to exist from then on."""
    reader.advance(0, max_messages=1)
    replayed = harness.open("q", session="t", open_and_lease=True)
    assert (reader.info().proven, replayed.info().proven) == (True, False)
    replayed.attach(0, 9)
    assert replayed.info().proven is True


def test_an_opening_says_what_it_cannot_put_back(harness, reader):
    """Q4, S9: leased messages of a deleted queue are not redelivered, and the warning says so."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"), max_messages=4)
    harness.do(c.DeleteQueue("q", force=True))
    refused(errors.LeaseHeldError, "4 messages", harness.open, "r", holder=BOB)
    (warning,) = harness.open("r", holder=BOB, takeover=True).reply.warnings
    assert "0 messages leased under its" in warning
    assert "; 4 of deleted queues were dropped." in warning


def test_an_unproven_lease_goes_back_and_into_the_new_lease(harness):
    """S9: a repeated opening of Trigger.Once leases the same messages again."""
    harness.declare_filled("q", 3)
    harness.open("q", open_and_lease=True)
    again = harness.open("q", open_and_lease=True, holder=BOB)
    assert again.fetch(0, 3) == labels(1, 3)
    assert again.pieces(0, 3)[0].runs == (c.Run(1, 3, 2),)
    assert again.reply.backlog == c.Backlog(0, 3, again.reply.backlog.oldest_us, 3)
    assert "3 messages leased under its incarnation" in again.reply.warnings[0]


def test_a_proven_incarnation_without_lease_is_replaced_with_a_warning(harness, reader):
    """S9: the old checkpoint is refused from then on, and a warning reports it."""
    reader.advance(0)
    reader.advance(10)
    (warning,) = harness.open("q", holder=BOB).reply.warnings
    assert reader.command.incarnation in warning
    refused(errors.SessionNotFoundError, "new checkpoint", reader.advance, 10)


def test_an_opening_names_no_tag(harness, reader):
    """S9: a tag without an incarnation belongs to no session."""
    command = replace(reader.command, incarnation="", start_tag=5)
    refused(errors.InvalidArgumentError, "tag 5 and no incarnation", harness.do, command)


def test_unproven_sessions_without_owner_and_lease_are_removed_after_a_day(harness):
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
    assert sessions(harness) == ["live", "once", "proven"]
    refused(errors.SessionNotFoundError, "no checkpoint came back", gone.advance, 1)


def forgotten(harness, **opening):
    """A reader whose session leased no message, and was forgotten."""
    harness.declare("q")
    reader = harness.open("q", **opening)
    harness.housekeep_after(DAY_US + 100)
    assert sessions(harness) == []
    return reader


def advance_from_zero(reader, **changes):
    """Starts at tag 0 of the reader's incarnation; a new incarnation may be opened."""
    return reader.advance(0, new_incarnation="9" * 32, **changes)


@pytest.mark.parametrize("session", ["s", ""], ids=["named", "anonymous"])
def test_tag_0_of_a_forgotten_incarnation_opens_anew(harness, session):
    """S9: nothing was accepted, so a query without messages for a day continues."""
    reader = forgotten(harness, session=session, open_and_lease=True)
    name = reader.reply.session
    reader.command = replace(reader.command, session=name, holder=BOB)
    harness.publish_to("q", 3)
    reply = advance_from_zero(reader, max_messages=2)
    assert (reply.session, reply.incarnation, reply.end_tag) == (name, "9" * 32, 2)
    assert "opened again" in reply.warnings[0]
    assert reader.info().proven
    reader.command = replace(reader.command, incarnation=reply.incarnation)
    assert reader.fetch(0, 2) == labels(1, 2)
    assert reader.advance(2).end_tag == 3


def test_a_successor_is_never_forgotten_and_ends_with_what_it_succeeds(harness):
    """S9: a checkpoint named it, so it stays; a released one is refused under both names."""
    reader = forgotten(harness)
    assert advance_from_zero(reader).end_tag == 0
    harness.now_us += 30 * DAY_US
    assert harness.decide(c.Housekeep()).records == ()
    harness.do(c.ReleaseSession("s"))
    for incarnation in (reader.command.incarnation, reader.reply.incarnation):
        reader.command = replace(reader.command, incarnation=incarnation)
        refused(errors.SessionNotFoundError, "released by an operator", advance_from_zero, reader)


def test_the_memory_of_ended_incarnations_is_bounded(harness, monkeypatch):
    """I6: the oldest incarnation is forgotten and then unknown."""
    monkeypatch.setattr("ackq_broker.core.sessions.advance.MAX_ENDED", 1)
    harness.declare("q")
    first, second, _ = (harness.open("q") for _ in range(3))
    refused(errors.SessionNotFoundError, "replaced", second.advance, 0)
    refused(errors.SessionNotFoundError, "history history", first.advance, 0)


def test_the_number_of_sessions_is_bounded(reader, monkeypatch):
    """I6: a session can still be replaced at the limit."""
    monkeypatch.setattr("ackq.limits.MAX_SESSIONS", 1)
    reader.harness.open("q")
    refused(errors.LimitError, "1 sessions", reader.harness.open, "q", session="t")


def test_an_anonymous_session_gets_a_name(harness):
    """S9: the name is made of the incarnation, so anonymous sessions never share one."""
    harness.declare_filled("q", 2)
    for number in (1, 2):
        reader = harness.open("q", session="")
        name = f"anonymous-{number:032x}"
        assert reader.reply.session == name
        assert reader.advance(0, session="", max_messages=1).session == name
    assert len(sessions(harness)) == 2
