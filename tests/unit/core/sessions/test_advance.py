"""Advance, attach and openings (S2-S4, S8, S9): holders, checkpoints, warnings and refusals."""

from dataclasses import replace
from functools import partial

import pytest

from ackq import errors
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import ALICE, BOB, DAY_US, labels, refused


@pytest.fixture
def third(reader):
    """The reader, of which two batches are accepted and the third, (4, 8], is outstanding."""
    for start, messages in ((0, 2), (2, 2), (4, 4)):
        reader.advance(start, max_messages=messages)
    return reader


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
    refused(errors.CheckpointMismatchError, r"outstanding lease \(4, 8\]", third.fetch, after, last)


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


# --- openings ---


def test_an_opening_says_what_it_cannot_put_back(harness, reader):
    """Q4, S9: leased messages of a deleted queue are not redelivered, and the warning says so."""
    harness.declare("r")
    reader.advance(0, queues=("q", "r"), max_messages=4)
    harness.do(c.DeleteQueue("q", force=True))
    refused(errors.LeaseHeldError, "4 messages", harness.open, "r", holder=BOB)
    (warning,) = harness.open("r", holder=BOB, takeover=True).reply.warnings
    assert "0 messages leased under its" in warning
    assert "; 4 of deleted queues were dropped." in warning


def test_a_proven_incarnation_without_lease_is_replaced_with_a_warning(harness, reader):
    """S9: the old checkpoint is refused from then on, and a warning reports it."""
    reader.advance(0)
    reader.advance(10)
    (warning,) = harness.open("q", holder=BOB).reply.warnings
    assert reader.command.incarnation in warning
    refused(errors.SessionNotFoundError, "new checkpoint", reader.advance, 10)


def test_a_call_names_its_session_and_its_queues(harness, reader, monkeypatch):
    """S9, S10, K1, I6: each refusal names what is too much or missing, and the remedy."""
    monkeypatch.setattr("ackq.limits.MAX_SESSIONS", 1)
    no_incarnation = {"incarnation": "", "start_tag": 5}
    for error, told, changes in (
        (errors.InvalidArgumentError, "tag 5 and no incarnation", no_incarnation),
        (errors.CheckpointMismatchError, "session 's'.*names session 'mine'", {"session": "mine"}),
        (errors.QueueNotFoundError, "'gone'", {"queues": ("q", "gone")}),
        (errors.InvalidArgumentError, "names no queue", {"queues": ()}),
        (errors.InvalidArgumentError, "pattern as well", {"queue_pattern": "q"}),
    ):
        refused(error, told, harness.do, replace(reader.command, **changes))
    refused(errors.LimitError, "1 sessions", harness.open, "q", session="t")
    reader = harness.open("q")  # a session can still be replaced at the limit
    reader.advance(0)
    harness.do(c.DeleteQueue("q", force=True))
    told = r"'s' has, tags \(0, 10\], is not.*`ackq queue declare q`"
    refused(errors.QueueNotFoundError, told, reader.advance, 10)


@pytest.mark.parametrize("session", ["s", ""], ids=["named", "anonymous"])
def test_tag_0_of_a_forgotten_incarnation_opens_anew(harness, session):
    """S9: nothing was accepted, so a query without messages for a day continues."""
    harness.declare("q")
    reader = harness.open("q", session=session, open_and_lease=True)
    name = reader.reply.session
    harness.housekeep_after(DAY_US + 100)
    assert views.list_sessions(harness.core.state) == []
    reader.command = replace(reader.command, session=name, holder=BOB)
    harness.publish_to("q", 3)
    reply = reader.advance(0, new_incarnation="9" * 32, max_messages=2)
    assert (reply.session, reply.incarnation, reply.end_tag) == (name, "9" * 32, 2)
    assert "opened again" in reply.warnings[0]
    reader.command = replace(reader.command, incarnation=reply.incarnation)
    assert reader.fetch(0, 2) == labels(1, 2)
    assert reader.advance(2).end_tag == 3


def test_the_memory_of_ended_incarnations_is_bounded(harness, monkeypatch):
    """I6: the oldest incarnation is forgotten and then unknown."""
    monkeypatch.setattr("ackq_broker.core.sessions.advance.MAX_ENDED", 1)
    harness.declare("q")
    first, second, _ = (harness.open("q") for _ in range(3))
    refused(errors.SessionNotFoundError, "replaced", second.advance, 0)
    refused(errors.SessionNotFoundError, "history history", first.advance, 0)


def test_an_anonymous_session_gets_a_name(harness):
    """S9: the name is made of the incarnation, so anonymous sessions never share one."""
    harness.declare_filled("q", 2)
    for number in (1, 2):
        reader = harness.open("q", session="")
        name = f"anonymous-{number:032x}"
        assert reader.reply.session == name
        assert reader.advance(0, session="", max_messages=1).session == name
    assert len(views.list_sessions(harness.core.state)) == 2
