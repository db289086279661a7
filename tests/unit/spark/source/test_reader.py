"""The source's calls to the broker, one by one, with a session that only records them."""

import pickle
import re
from functools import partial

import pytest

from ackq import errors, limits
from ackq.client import holder
from ackq.info import SessionInfo
from ackq.spark.engine import ReadAllAvailable, ReadMaxRows
from ackq.spark.options import options
from ackq.spark.source.fetch import LeaseRange
from ackq.spark.source.reader import AckqStreamReader
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.fetch_key import fetch_key
from tests.unit.spark.source.conftest import SCHEMA, START, advanced, at, attached

MAX = ReadMaxRows(5)
HOLDER = holder("spark")


@pytest.fixture
def make(make):
    """Makes a reader of at most five messages a batch."""
    return partial(make, maxMessagesPerTrigger="5")


def polled(reader, *starts):
    """The ends of the next batches, from these starts."""
    return [reader.latestOffset(start, MAX) for start in starts]


def test_initial_offset_is_constant(make, session):
    """S9, K5: every query starts at the same offset, with a limit, without a call."""
    assert make().initialOffset() == START
    assert make().getDefaultReadLimit() == MAX
    assert make().partitions(START, START) == []
    assert make().partitions(at(4), at(4)) == []
    assert session.asked == []


def test_a_subscription_is_made_before_the_session_is_opened(session):
    """S10: the queue is declared and bound at the opening offset only, before any other call."""
    given = {"endpoint": "b:1", "exchange": "e", "subscription": "mine", "binding": "a.#,b"}
    parsed, made = options.source(given), []

    def declare(wanted, broker):
        made.append((wanted, broker, list(session.asked)))

    reader = AckqStreamReader(parsed, SCHEMA, lambda _broker: session, session.find, declare)
    session.answers.extend((advanced(0), advanced(1)))
    polled(reader, START, at(0))
    assert made == [(parsed, parsed.broker, [])]
    assert (parsed.queues, parsed.exchange, parsed.binding) == (("mine",), "e", ("a.#", "b"))
    assert list(session.asked[0].queues) == ["mine"]


def test_opening_leases_nothing(make, session):
    """S9: batch 0 is empty and records the session before any lease."""
    assert make(advanced(0)).latestOffset(START, MAX) == at(0)
    (asked,) = session.asked
    assert (asked.session, asked.incarnation, asked.start_tag) == ("", "", 0)
    assert not asked.open_and_lease


def test_a_named_session_leases_with_its_opening(make, session):
    """S9: no message is left with a session that nobody can name, so batch 0 has rows."""
    answers = (advanced(3, (3, 30)), advanced(5, (5, 20)))
    reader = make(*answers, session="s", minMessagesPerTrigger="2")
    assert reader.latestOffset(START, MAX) == at(3)
    assert reader.partitions(START, at(3)) == [LeaseRange("s", "i1", 1, 0, 3)]
    reader.latestOffset(at(3), MAX)
    assert [asked.open_and_lease for asked in session.asked] == [True, False]
    assert (session.asked[0].max_messages, session.asked[0].min_messages) == (5, 2)


def test_advance_asks_for_one_batch(make, session):
    """S4, K6: one call per batch carries the start tag as proof, the queues and every limit."""
    minimum = {"minMessagesPerTrigger": "2", "maxTriggerDelay": "3s"}
    reader = make(advanced(15, (15, 900)), session="s", maxBytesPerTrigger="1k", **minimum)
    assert reader.latestOffset(at(10), MAX) == at(15)
    assert session.asked == [
        pb.AdvanceRequest(
            session="s",
            incarnation="i1",
            holder=HOLDER,
            queues=["q"],
            start_tag=10,
            max_messages=5,
            max_bytes=1024,
            min_messages=2,
            max_delay_ms=3000,
            wait_ms=limits.ADVANCE_WAIT_MS,
            refuse_unread=True,
        )
    ]


def test_once_opens_and_leases(make, session):
    """S9, K5: Trigger.Once calls only once, so that call leases, without minimum or maximum."""
    reader = make(advanced(3, (3, 30)), minMessagesPerTrigger="2")
    assert reader.latestOffset(START, ReadAllAvailable()) == at(3)
    (asked,) = session.asked
    assert asked.open_and_lease
    assert (asked.max_messages, asked.max_bytes, asked.min_messages) == (0, 0, 0)


def test_available_now_is_bounded_at_prepare(make, session):
    """K5: the bound is the journal sequence at prepare; no minimum, delay or wait applies."""
    reader = make(advanced(0), minMessagesPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    assert session.asked == ["horizon"]
    reader.latestOffset(START, MAX)
    asked = session.asked[1]
    assert (asked.horizon, asked.min_messages, asked.wait_ms) == (77, 0, 0)
    assert asked.max_messages == 5


def test_partitions_use_the_lease_of_latest_offset(make, session):
    """K2: planning uses the advance's answer, without a call and repeatably."""
    reader = make(advanced(14, (12, 100), (14, 100), epoch=3), minPartitions="2")
    reader.latestOffset(at(10), MAX)
    expected = [LeaseRange("s", "i1", 3, 10, 12), LeaseRange("s", "i1", 3, 12, 14)]
    assert reader.partitions(at(10), at(14)) == expected
    assert reader.partitions(at(10), at(14)) == expected
    assert len(session.asked) == 1


def test_tasks_get_the_key_and_not_the_token(make):
    """A4: executors get a key derived from the holder's token, which cannot attach."""
    reader = make(advanced(14, (14, 100), epoch=3))
    reader.latestOffset(at(10), MAX)
    (part,) = reader.partitions(at(10), at(14))
    assert part.key == fetch_key(HOLDER.token, "i1", 3)
    assert HOLDER.token not in pickle.dumps(part)
    assert part.key.hex() not in repr(part)
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
    """S3: `latestOffset` opens the liveness stream, once per epoch, never earlier."""
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


def test_fenced_holder_stops(make, session):
    """S3: a fenced reader raises and does not take its session back."""
    reader = make(advanced(0))
    reader.latestOffset(START, MAX)
    session.holds[0].fenced = errors.FencedError("Session 's' is held by host b, process 7.")
    with pytest.raises(errors.FencedError, match="process 7"):
        reader.latestOffset(at(0), MAX)
    assert len(session.asked) == 1


def test_vanished_session_reopens_while_running(make, session):
    """Without failOnDataLoss a session lost while its query runs is opened again."""
    gone = errors.SessionNotFoundError("Session 's' is gone.")
    reader = make(advanced(0), gone, advanced(0, incarnation="i2"), failOnDataLoss="false")
    reader.latestOffset(START, MAX)
    session.holds[0].fenced = gone
    assert reader.latestOffset(at(0), MAX) == at(0, "i2")
    assert session.holds[1].of[1] == "i2"


@pytest.mark.parametrize(
    ("given", "queues", "said"),
    [
        ({"session": "other"}, ["q"], r"'s'.*'other'"),
        ({}, ["a", "b"], r"of queue 'a', 'b'.*reads queue 'q'"),
        *(
            (
                {"queue": None, "queuePattern": pattern},
                ["orders.eu"],
                rf"of queue 'orders\.eu'.*this one reads queues like '{re.escape(pattern)}'",
            )
            for pattern in ("orders.?", "orders", "orders.eu.*", "[o]rders.eu")
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


def test_queues_are_looked_up_once(make, session):
    """S10: the check costs one call per query process, and none at its opening."""
    reader = make(advanced(0), advanced(5, (5, 9)))
    polled(reader, START, at(0))
    assert session.looked_up == []
    restarted = make(advanced(5, (5, 9)), advanced(9, (9, 9)))
    restarted.latestOffset(at(0), MAX)
    restarted.commit(at(0))
    restarted.latestOffset(at(5), MAX)
    assert session.looked_up == ["s"]


@pytest.mark.parametrize("recorded", [None, SessionInfo(incarnation="i2", queues=["a"])])
def test_a_session_that_is_gone_is_not_judged_by_its_queues(make, session, recorded):
    """S9: a replaced or released incarnation is left to the broker to refuse."""
    session.recorded = recorded
    assert make(advanced(5)).latestOffset(at(5), MAX) == at(5)


@pytest.mark.parametrize(
    "lost", [errors.SessionNotFoundError, errors.HistoryChangedError, errors.AlreadyHeldError]
)
def test_lost_session_fails(make, lost):
    """K10: with failOnDataLoss, the default, a session that is lost or held ends the query."""
    with pytest.raises(lost, match="by host a"):
        make(lost("Session 's' is held by host a.")).latestOffset(at(10), MAX)


@pytest.mark.parametrize("lost", [errors.SessionNotFoundError, errors.HistoryChangedError])
def test_lost_session_reopens(make, caplog, lost):
    """Without failOnDataLoss a new session is opened in an empty batch of its own."""
    gone, later = lost("Session 's' is gone."), advanced(5, (5, 9), incarnation="i2")
    reader = make(gone, advanced(0, incarnation="i2"), later, failOnDataLoss="false")
    assert reader.latestOffset(at(10), MAX) == at(0, "i2")
    assert reader.partitions(at(10), at(0, "i2")) == [LeaseRange("s", "i2", 1, 0, 0)]
    assert "failOnDataLoss" in caplog.text
    reader.commit(at(10))
    assert reader.latestOffset(at(0, "i2"), MAX) == at(5, "i2")


def test_lost_replay(make, caplog):
    """Without failOnDataLoss a batch whose session was lost is replayed without rows."""
    gone = errors.SessionNotFoundError("Session 's' is gone.")
    assert make(gone, failOnDataLoss="false").partitions(at(10), at(14)) == []
    assert "without its rows" in caplog.text


@pytest.mark.parametrize("takeover", ["true", "false"])
def test_opening_under_available_now(make, session, takeover):
    """K5, S9: messages that an opening requeues are above the bound, so it is taken again.

    `takeover` is sent with the opening call only.
    """
    reader = make(advanced(0), advanced(5, (5, 9)), takeover=takeover)
    reader.prepareForTriggerAvailableNow()
    polled(reader, START, at(0))
    asked = ["horizon" if each == "horizon" else each.takeover for each in session.asked]
    assert asked == ["horizon", takeover == "true", "horizon", False]


def test_reopening_under_available_now(make, session):
    """K5: the bound is taken again also after a lost session is reopened."""
    gone = errors.SessionNotFoundError("gone")
    reader = make(gone, advanced(0, incarnation="i2"), failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(at(10), MAX)
    calls = ["horizon" if asked == "horizon" else "advance" for asked in session.asked]
    assert calls == ["horizon", "advance", "advance", "horizon"]


def test_warnings_of_the_broker_are_logged(make, caplog):
    """S9, S10: warnings of an opening and of a replay's attach are logged."""
    opening = advanced(0, warnings=["One holds your messages.", "A circle."])
    make(opening).latestOffset(START, MAX)
    make(attached(2, warnings=["Another circle."])).partitions(at(10), at(14))
    assert caplog.messages == ["One holds your messages.", "A circle.", "Another circle."]


def test_backlog_needs_no_call(make, session):
    """`reportLatestOffset` reports the backlog of the last advance without a call."""
    figures = {"ready": 7, "unacked": 5, "oldest_age_ms": 120, "redelivered": 1}
    reader = make(advanced(5, (5, 9), backlog=pb.Backlog(**figures)))
    assert reader.reportLatestOffset() is None
    reader.latestOffset(at(0), MAX)
    more = {"v": 1, "attaches": 0, "session": "s", "lease_bytes": 9}
    assert reader.reportLatestOffset() == figures | more
    assert len(session.asked) == 1


def test_other_sessions_are_told_once(make, caplog):
    """S10: other sessions on the same queue are logged once."""
    reader = make(advanced(0, other_sessions=["t"]), advanced(0, other_sessions=["t"]))
    polled(reader, at(0), at(0))
    assert caplog.text.count("Other sessions read from q") == 1


def test_third_attach_is_reported(make, caplog):
    """S8: a lease attached three times is logged with its tags and the command."""
    reader = make(advanced(5, (5, 9), attaches=3), advanced(9, (9, 9), attaches=1))
    reader.latestOffset(at(0), MAX)
    assert "tags 1 to 5 of session 's'" in caplog.text
    assert "`ackq session lease s --tags 1-5`" in caplog.text
    assert "`ackq session reject s --tags N --reason WHY`" in caplog.text
    report = reader.reportLatestOffset()
    assert (report["attaches"], report["warning"]) == (3, caplog.messages[0])
    reader.commit(at(0))
    reader.latestOffset(at(5), MAX)
    assert "warning" not in reader.reportLatestOffset()
    assert len(caplog.messages) == 1
    # Also for a replay from the checkpoint, which asks for no offset.
    make(attached(3, attaches=4)).partitions(at(0), at(5))
    assert "tags 1 to 5 of session 's' has been attached 4 times" in caplog.text


def test_pattern_and_timeout_go_with_every_advance(make, session):
    """S5, S10: each advance carries queue pattern and session timeout."""
    session.recorded = SessionInfo(incarnation="i1", queues=["orders.eu", "old"])
    given = {"queue": None, "queuePattern": "orders.*", "sessionTimeout": "10m"}
    reader = make(advanced(0), advanced(0), **given)
    polled(reader, START, at(0))
    for asked in session.asked:
        assert (asked.queues, asked.queue_pattern) == ([], "orders.*")
        assert asked.session_timeout_ms == 600_000
    assert len(session.asked) == 2


def test_sync_progress_passes(make):
    """K11: Spark's ordinary order of calls, idle polls included, is accepted."""
    reader = make(advanced(0), advanced(5, (5, 9)), advanced(5), advanced(5))
    assert polled(reader, START, at(0)) == [at(0), at(5)]
    reader.commit(at(0))
    assert polled(reader, at(5), at(5)) == [at(5), at(5)]


def test_async_progress_is_refused(make, session):
    """K11: a new start without a `commit` of the previous batch is refused."""
    reader = make(advanced(5, (5, 9)), advanced(10, (10, 9)))
    reader.latestOffset(at(0), MAX)
    with pytest.raises(errors.UnsupportedError, match="asyncProgressTrackingEnabled"):
        reader.latestOffset(at(5), MAX)
    assert len(session.asked) == 1


def test_reader_pickles_before_use(make):
    """A reader that was never called pickles, as Spark sends it to its tasks."""
    reader = make()
    reader._connect = reader._find = options.source  # any function that pickles by reference
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert copy._options == reader._options
    assert copy._names == ["delivery_tag", "body"]
