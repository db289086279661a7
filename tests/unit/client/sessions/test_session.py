"""A session's calls against a scripted broker: retries, resumed fetches, liveness. Rules S2-S4."""

import threading

import pytest

from ackq import errors, limits
from ackq.client import Session, holder
from ackq.v1 import sessions_pb2
from tests.eventually import eventually
from tests.fakes import scripted_broker as fake
from tests.unit.client.blocks.test_decoding import content, runs
from tests.unit.client.threads import SOON_S, run_program

GONE = errors.BrokerUnavailableError("The broker is shutting down.")


@pytest.fixture
def waits():
    return []


@pytest.fixture
def session(broker, waits):
    return Session(broker.endpoint, on_wait=lambda error, wait_s: waits.append((error, wait_s)))


@pytest.mark.parametrize(
    "error", [GONE, errors.AlreadyHeldError("Session 's' is held by host a.", host="a")]
)
def test_transient_errors_are_retried(broker, session, waits, error):
    """S3: an outage, or another holder, is waited for and reported: an error ends the query."""
    answer = sessions_pb2.AdvanceResponse(session="s", end_tag=7)
    broker.sessions.advances.extend([error, error, answer])
    assert session.advance(sessions_pb2.AdvanceRequest(session="s")) == answer
    assert [type(waited) for waited, _ in waits] == [type(error)] * 2


def test_cut_fetch_continues_after_the_last_tag(broker, session):
    """S2: a fetch resumes after the last received tag, with no row twice or missing."""
    first, rest = (
        sessions_pb2.FetchResponse(header=runs((tag, len(bodies))), block=content(bodies))
        for tag, bodies in ((1, [b"a", b"b"]), (3, [b"c"]))
    )
    broker.sessions.fetches.extend([[first, GONE], [GONE], [rest]])
    got = list(session.fetch(sessions_pb2.FetchRequest(last_tag=3), ["body"]))
    assert [batch.column(0).to_pylist() for batch in got] == [[b"a", b"b"], [b"c"]]
    asked = [(each.last_tag, each.after_tag) for each in broker.sessions.fetch_requests]
    assert asked == [(3, 0), (3, 2), (3, 2)]


@pytest.mark.parametrize("tag", [0, 4])
def test_a_fetch_of_no_tags_is_answered_by_the_broker(broker, session, tag):
    """S11: the broker notes the batch of an opening: an error means that it may not have."""
    fenced = errors.FencedError("Another holder has taken over.")
    broker.sessions.fetches.extend([[GONE], [], [fenced]])
    empty = sessions_pb2.FetchRequest(after_tag=tag, last_tag=tag)
    assert list(session.fetch(empty, ["body"])) == []
    with pytest.raises(errors.FencedError):
        list(session.fetch(empty, ["body"]))
    assert len(broker.sessions.fetch_requests) == 3


def test_hold_beats_until_it_is_closed(broker, session, monkeypatch):
    """S3: heartbeats are sent at an interval; closing leaves no thread."""
    monkeypatch.setattr(limits, "HEARTBEAT_SEND_MS", 5)
    beaten = threading.Event()

    def script(requests):
        for count, _ in enumerate(requests):
            if count == 3:
                beaten.set()
            yield sessions_pb2.HoldResponse(heartbeat_ms=5)

    broker.sessions.holds.append(script)
    with session.hold("s", "i", 4, b"token") as hold:
        assert beaten.wait(SOON_S)
        assert hold.fenced is None
    first = broker.sessions.hold_requests[0]
    assert (first.session, first.incarnation, first.epoch, first.token) == ("s", "i", 4, b"token")
    assert [each for each in threading.enumerate() if each.name == "ackq-hold"] == []


@pytest.mark.parametrize("error", [GONE, errors.SessionNotFoundError("There is no session 's'.")])
def test_hold_reconnects(broker, session, error):
    """S3: a cut liveness stream is opened again, and one that another broker refused for a while.

    Until the session's broker answers, the refusal is what `fenced` tells.
    """
    held, seen = threading.Event(), []

    def steady(requests):
        assert held.wait(SOON_S)
        for _ in requests:
            seen.append(hold.fenced)
            yield sessions_pb2.HoldResponse(heartbeat_ms=5)

    broker.sessions.holds.extend([fake.refusing(error), steady])
    with session.hold("s", "i", 1, b"t") as hold:
        held.set()
        eventually("the answers", lambda: len(seen) > 1)
        assert type(seen[0]) is (type(None) if error is GONE else type(error))
        assert hold.fenced is None


def test_fenced_hold_says_why_and_stops(broker, session):
    """S3: a fenced liveness stream keeps the error and sends nothing more."""
    fenced = errors.FencedError("Session 's' is held by host b.", host="b")
    broker.sessions.holds.append(fake.refusing(fenced))
    hold = session.hold("s", "i", 1, b"t")
    hold._thread.join(SOON_S)
    assert isinstance(hold.fenced, errors.FencedError)
    assert hold.fenced.fields == {"host": "b"}
    hold.close()


def test_holder_is_one_per_process():
    """S3: a process keeps one holder token, and another process has another."""
    mine = holder("app")
    assert (mine.token, mine.pid, mine.application) == (holder().token, holder().pid, "app")
    other = run_program("from ackq.client import holder\nprint(holder().token.hex())")
    assert len(other.stdout.strip()) == 2 * len(mine.token) == 32
    assert other.stdout.strip() != mine.token.hex()
