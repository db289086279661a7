"""The source's calls to the broker, one by one, with a session that only records them."""

import pickle
from functools import partial

import pytest

from ackq import errors, limits
from ackq.client import holder
from ackq.info import SessionInfo
from ackq.spark.engine import ReadAllAvailable, ReadMaxRows
from ackq.spark.source.fetch import LeaseRange
from ackq.spark.source.reader import AckqStreamReader
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.fetch_key import fetch_key
from tests.unit.spark.source.conftest import START, advanced, at, attached

MAX = ReadMaxRows(5)
HOLDER = holder("spark")


@pytest.fixture
def make(make):
    """Makes a reader of at most five messages a batch."""
    return partial(make, maxMessagesPerTrigger="5")


def polled(reader, *starts):
    """The ends of the next batches, from these starts."""
    return [reader.latestOffset(start, MAX) for start in starts]


def test_tasks_get_the_key_and_not_the_token(make):
    """A4: executors get a key derived from the holder's token, which cannot attach."""
    reader = make(advanced(14, (14, 100), epoch=3))
    reader.latestOffset(at(10), MAX)
    (part,) = reader.partitions(at(10), at(14))
    assert part.key == fetch_key(HOLDER.token, "i1", 3)
    assert HOLDER.token not in pickle.dumps(part)
    assert repr(part.key) not in repr(part)


def test_partitions_of_an_opening(make):
    """S9, S11: batch 0 has no rows but one task, which reports query and batch id."""
    reader = make(advanced(0))
    reader.latestOffset(START, MAX)
    assert reader.partitions(START, at(0)) == [LeaseRange("s", "i1", 1, 0, 0)]
    assert make(attached(2)).partitions(START, at(0)) == [LeaseRange("s", "i1", 2, 0, 0)]
    assert make(errors.SessionNotFoundError("gone")).partitions(START, at(0)) == []
    assert make(attached(1, (3, 9))).partitions(START, at(3)) == [LeaseRange("s", "i1", 1, 0, 3)]


def test_a_batch_without_rows_is_reported(make, session):
    """S3, S11: `commit` comes after `offsets/N`, and reports batch N by its count in the epoch."""
    reader = make()
    for epoch, planned in ((1, 1), (1, 2), (2, 1)):
        session.answers.extend([advanced(10, epoch=epoch), attached(epoch)])
        reader.latestOffset(at(10), MAX)
        reader.commit(at(10))
        assert session.asked[-1] == pb.AttachRequest(
            session="s", incarnation="i1", holder=HOLDER, start_tag=10, end_tag=10, planned=planned
        )


def test_replay_attaches_once(make, session):
    """K2: after a restart `partitions` comes first, and attaches to exactly its lease."""
    reader = make(attached(2, (14, 9)), advanced(14, epoch=2))
    for _ in range(2):
        assert reader.partitions(at(10), at(14)) == [LeaseRange("s", "i1", 2, 10, 14)]
    wanted = {"session": "s", "incarnation": "i1", "holder": HOLDER}
    assert session.asked == [pb.AttachRequest(start_tag=10, end_tag=14, **wanted)]
    assert reader.latestOffset(at(14), MAX) == at(14)
    assert len(session.holds) == 1


def test_holder_lives_from_the_first_offset(make, session):
    """S3: `latestOffset` opens the liveness stream, not earlier, and one for each epoch."""
    reader = make(advanced(0), advanced(5, (5, 9)), advanced(5, epoch=4))
    reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert session.holds == []
    polled(reader, START, at(0))
    assert [hold.of for hold in session.holds] == [("s", "i1", 1, HOLDER.token)]
    reader.commit(at(0))
    reader.latestOffset(at(5), MAX)
    assert [hold.closed for hold in session.holds] == [True, False]
    reader.stop()
    assert session.holds[-1].closed


@pytest.mark.parametrize("recorded", [None, SessionInfo(incarnation="i2", queues=["a"])])
def test_a_session_that_is_gone_is_not_judged_by_its_queues(make, session, recorded):
    """S9: a replaced or released incarnation is left to the broker to refuse."""
    session.recorded = recorded
    assert make(advanced(5)).latestOffset(at(5), MAX) == at(5)


def test_third_attach_is_reported(make, caplog):
    """S8: a lease attached three times is told with its tags; progress has the backlog as well."""
    figures = {"ready": 7, "unacked": 5, "oldest_age_ms": 120, "redelivered": 1}
    backlog = pb.Backlog(**figures)
    often = advanced(5, (5, 9), attaches=3, backlog=backlog)
    reader = make(often, advanced(9, (9, 9), attaches=1))
    assert reader.reportLatestOffset() is None
    reader.latestOffset(at(0), MAX)
    (told,) = caplog.messages
    assert "tags 1 to 5 of session 's'" in told
    more = {"v": 1, "attaches": 3, "session": "s", "lease_bytes": 9, "warning": told}
    assert reader.reportLatestOffset() == figures | more
    reader.commit(at(0))
    reader.latestOffset(at(5), MAX)
    assert "warning" not in reader.reportLatestOffset()
    assert len(caplog.messages) == 1
    # Also for a replay from the checkpoint, which asks for no offset.
    make(attached(3, attaches=4)).partitions(at(0), at(5))
    assert "tags 1 to 5 of session 's' has been attached 4 times" in caplog.text


QUERY = {"minMessagesPerTrigger": "2", "maxTriggerDelay": "3s", "maxBytesPerTrigger": "1k"}
OPENS = {"session": "", "incarnation": "", "start_tag": 0}
UNBOUNDED = {"max_messages": 0, "max_bytes": 0, "min_messages": 0, "max_delay_ms": 0, "wait_ms": 0}
BY_PATTERN = {"queues": [], "queue_pattern": "q.*", "session_timeout_ms": 600_000}
PATTERN = {"queuePattern": "q.*", "queue": None, "sessionTimeout": "10m"}


@pytest.mark.parametrize(
    ("start", "limit", "given", "changes"),
    [
        (at(10), MAX, {"session": "s"}, {}),
        # S9: batch 0 records the session before any lease, unless its name finds it.
        (START, MAX, {}, OPENS),
        (START, MAX, {"session": "s"}, {**OPENS, "session": "s", "open_and_lease": True}),
        # S9, K5: Trigger.Once calls only once, so that call leases.
        (START, ReadAllAvailable(), {}, {**OPENS, **UNBOUNDED, "open_and_lease": True}),
        (START, MAX, {"takeover": "true"}, {**OPENS, "takeover": True}),
        (at(10), MAX, {"takeover": "true"}, {}),
        (at(10), MAX, PATTERN, BY_PATTERN),
    ],
)
def test_what_an_advance_asks(make, session, start, limit, given, changes):
    """S4, S5, S10, K6: one call per batch has the start tag as proof, queues and all limits."""
    session.recorded = SessionInfo(incarnation="i1", queues=["q.eu", "q"])
    assert make(advanced(15, (15, 900)), **QUERY, **given).latestOffset(start, limit) == at(15)
    proof = {"session": "s", "incarnation": "i1", "holder": HOLDER, "start_tag": 10}
    most = {"max_messages": 5, "max_bytes": 1024, "min_messages": 2, "max_delay_ms": 3000}
    fields = {**proof, **most, "queues": ["q"], "wait_ms": limits.ADVANCE_WAIT_MS, **changes}
    (asked,) = session.asked
    if start is START and "session" not in given:
        assert asked.session.startswith(limits.ANONYMOUS_PREFIX)
        asked.session = ""
    assert asked == pb.AdvanceRequest(refuse_unread=True, **fields)


@pytest.mark.parametrize("start", [START, at(10)])
def test_available_now_is_bounded(make, session, start):
    """K5, S9: bounded at its start, and anew after an opening, which requeues messages."""
    lost = [] if start == START else [errors.SessionNotFoundError("gone")]
    reader = make(*lost, advanced(0, incarnation="i2"), failOnDataLoss="false", **QUERY)
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(start, MAX)
    bound, *opened, again = session.asked
    assert (bound, again, len(opened)) == ("horizon", "horizon", len(lost) + 1)
    for asked in opened:
        assert (asked.horizon, asked.max_messages) == (77, 5)
        assert (asked.min_messages, asked.wait_ms) == (0, 0)


@pytest.mark.parametrize(
    ("given", "queues", "said"),
    [
        ({"session": "other"}, ["q"], r"'s'.*'other'"),
        ({}, ["a", "b"], r"of queue 'a', 'b'.*reads queue 'q'"),
        *(
            ({"queue": None, "queuePattern": pattern}, ["q.eu"], r"of queue 'q\.eu'.*queues like")
            for pattern in ("q.?", "q", "q.eu.*", "[q].eu")
        ),
    ],
)
def test_checkpoint_of_another_query(make, session, given, queues, said):
    """S10: a checkpoint of another session, or of none of the query's queues, is refused."""
    session.recorded.queues[:] = queues
    reader = make(**given)
    with pytest.raises(errors.CheckpointMismatchError, match=said):
        reader.latestOffset(at(1), MAX)
    with pytest.raises(errors.CheckpointMismatchError, match=said):
        reader.partitions(at(1), at(2))
    assert session.asked == []


@pytest.mark.parametrize("lost", [errors.SessionNotFoundError, errors.HistoryChangedError])
def test_lost_session_reopens(make, session, caplog, lost):
    """K10: it ends the query, or without failOnDataLoss a session is opened in an empty batch."""
    with pytest.raises(lost, match="by host a"):
        make(lost("Session 's' is held by host a.")).latestOffset(at(10), MAX)
    gone, later = lost("Session 's' is gone."), advanced(5, (5, 9), incarnation="i2")
    opened = advanced(0, incarnation="i2")
    reader = make(gone, opened, opened, later, failOnDataLoss="false")
    assert reader.partitions(at(5), at(10)) == []
    # K2: it may be back, so nothing is accepted of what this batch did not read.
    assert reader.latestOffset(at(10), MAX) == at(0, "i2")
    assert [each.incarnation for each in session.asked[-3:]] == ["i1", "", ""]
    assert reader.partitions(at(10), at(0, "i2")) == [LeaseRange("s", "i2", 1, 0, 0)]
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        "the batch is run again without its rows.",
        "a new session is opened.",
    ]
    reader.commit(at(10))
    assert reader.latestOffset(at(0, "i2"), MAX) == at(5, "i2")
    reader.commit(at(0, "i2"))
    session.answers.extend([gone, advanced(0, incarnation="i3")])
    assert reader.latestOffset(at(5, "i2"), MAX) == at(0, "i3")
    # The lost one may be back with its lease, so that its name could not be opened.
    opened = [
        each.session
        for each in session.asked
        if isinstance(each, pb.AdvanceRequest) and not each.incarnation
    ]
    assert len(set(opened)) == 2


@pytest.mark.parametrize("refusal", [errors.QueueNotFoundError, errors.LeaseHeldError])
def test_a_batch_is_not_run_without_its_rows_where_no_session_opens(make, session, refusal):
    """K2: an empty broker may answer for a while, and a restored one has the batch (S9)."""
    given = {"failOnDataLoss": "false", "session": "s", "startFrom": "earliest"}
    with pytest.raises(refusal):
        make(errors.SessionNotFoundError("gone"), refusal("No."), **given).partitions(at(5), at(10))
    assert not session.asked[-1].HasField("rewind")


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_batch_without_rows_of_a_lost_session(make, fails):
    """K10, S11: its report ends the query as well, or without failOnDataLoss has no object."""
    gone = errors.SessionNotFoundError("Session 's' is gone.")
    reader = make(advanced(10), gone, gone, advanced(0, incarnation="i2"), failOnDataLoss=fails)
    assert polled(reader, at(10)) == [at(10)]
    if fails == "true":
        with pytest.raises(errors.SessionNotFoundError):
            reader.commit(at(10))
    else:
        reader.commit(at(10))
        assert polled(reader, at(10)) == [at(0, "i2")]


def test_a_subscription_is_made_before_each_opening(make, session):
    """S10: also before that of a session which the broker has lost, with its queues."""
    made = partial(AckqStreamReader, subscribe=lambda *_: session.asked.append("subscribed"))
    given = {"exchange": "e", "subscription": "q", "queue": None, "failOnDataLoss": "false"}
    gone = errors.SessionNotFoundError("Session 's' is gone.")
    answers = advanced(0), advanced(0), gone, advanced(0, incarnation="i2")
    assert polled(make(*answers, kind=made, **given), START, at(0), at(0))[-1] == at(0, "i2")
    asked = [each if each == "subscribed" else each.incarnation for each in session.asked]
    assert asked == ["subscribed", "", "i1", "i1", "subscribed", ""]


def test_a_session_that_is_opened_again_is_not_rewound(make, session):
    """K15: with a checkpoint `startFrom` has no effect, in the first process of a query, too."""
    given = {"session": "s", "startFrom": "earliest", "failOnDataLoss": "false"}
    gone = errors.SessionNotFoundError("Session 's' is gone.")
    reader = make(advanced(0), gone, advanced(0, incarnation="i2"), **given)
    assert polled(reader, START, at(0)) == [at(0), at(0, "i2")]
    assert [each.HasField("rewind") for each in session.asked] == [True, False, False]


def test_warnings_of_the_broker_are_logged(make, caplog):
    """S9, S10: those of an opening and of a replay's attach; other sessions are told once."""
    told = {"other_sessions": ["t"], "warnings": ["One holds your messages."]}
    polled(make(advanced(0, **told), advanced(0, other_sessions=["t"])), START, at(0))
    make(attached(2, warnings=["A circle."])).partitions(at(10), at(14))
    assert {"One holds your messages.", "A circle."} < set(caplog.messages)
    assert caplog.text.count("Other sessions read from q") == 1
