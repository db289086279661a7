"""Sessions over the wire, by raw stubs, against a real broker process."""

import time
from queue import SimpleQueue

import grpc
import pytest

import ackq_broker
from ackq import errors, limits
from ackq.client import Session
from ackq.client.connection import calls
from ackq.v1 import sessions_pb2
from ackq.wire import columns
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.blocks import rows
from tests.fakes.raw_client import (
    STREAM_S,
    TIMEOUT_S,
    holder,
    killed,
    refused,
    refused_with,
    refused_with_status,
    restarted,
    tags,
)

# Longer than a call of the raw client may take.
MAX_WAIT_MS = 10_000 * TIMEOUT_S


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """Limits of a broker: only messages end an advance's wait, and a silent holder stays live."""
    values = {"MAX_ADVANCE_WAIT_MS": MAX_WAIT_MS, "HEARTBEAT_MS": MAX_WAIT_MS}
    return machine.with_limits(tmp_path_factory.mktemp("env"), values)


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory, env):
    """A broker with the limits of these tests."""
    with ackq_broker.embedded(tmp_path_factory.mktemp("broker") / "data", env=env) as running:
        yield running


@pytest.fixture
def broker(tmp_path, env):
    """A broker with the limits of these tests, which the test may kill."""
    with ackq_broker.embedded(tmp_path / "data", env=env) as running:
        yield running


class HoldCall:
    """A liveness stream, opened and answered once."""

    def __init__(self, client, advanced, reader):
        self._beats = SimpleQueue()
        self._request = sessions_pb2.HoldRequest(
            session=advanced.session,
            incarnation=advanced.incarnation,
            epoch=advanced.epoch,
            token=reader.token,
        )
        self.call = client.sessions.Hold(iter(self._beats.get, None), timeout=STREAM_S)
        self.answer = self.beat()

    def beat(self):
        self._beats.put(self._request)
        return next(self.call)


def cut(client, hold, session="s"):
    """Ends a liveness stream, and waits until its holder no longer counts as live."""
    hold.call.cancel()
    eventually("the holder's absence", lambda: not client.session(session).live)


# --- leases ---


def test_a_lease(client, reader):
    """S1, S2: the first lease is the tags (0, n], its rows carry them, and no others are read.

    While it is outstanding no second one is made, whatever the limit. A fetch sends only the
    requested columns (Design 6).
    """
    client.publish(b"a", b"b", b"c")
    incarnation, lease = client.open(reader, max_messages=2)
    assert (lease.epoch, lease.end_tag) == (1, 2)
    found, headers = client.fetch(lease, 0, 2)
    assert (found, tags(headers)) == ([b"a", b"b"], [1, 2])
    assert [list(header.delivery_count) for header in headers] == [[1]]
    assert [list(header.queues) for header in headers] == [["q"]]
    error, status = refused(client.fetch, lease, 0, 3)
    assert (type(error), status) == (errors.CheckpointMismatchError, "FAILED_PRECONDITION")
    wanted = columns.bits(("routing_key", "delivery_tag"))
    (frame,) = client.fetch_frames(lease, 0, 1, columns=wanted)
    assert "body" not in rows(frame.block)
    again = client.advance(reader, incarnation=incarnation, max_messages=100)
    assert again.end_tag == 2
    assert (again.backlog.ready, again.backlog.unacked) == (1, 2)


def test_fetch_gives_the_same_rows_every_time(client):
    """S2: sub-ranges, repeats and parallel fetches give the same rows under the same tags."""
    names = [b"%d" % n for n in range(100)]
    client.publish(*names[:30])
    client.publish(*names[30:])
    _, lease = client.open(holder())
    assert client.fetch(lease, 0, 100)[0] == names
    assert client.fetch(lease, 0, 100)[0] == names
    for after, last in ((0, 1), (10, 55), (29, 31), (99, 100)):
        found, headers = client.fetch(lease, after, last)
        assert found == names[after:last]
        assert tags(headers) == list(range(after + 1, last + 1))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_leases_and_their_rows_survive_a_restart(broker, own, end, reader):
    """S1, S2, Q7: after a kill or stop the same holder gets the same lease with the same rows.

    A leased transient message, whose row overrides the frame's delivery mode (P12), is a hole then;
    the other tags stay.
    """
    own.publish(b"a", b"b", b"t", b"c", b"d", persistent=[True, None, False, True, True])
    incarnation, lease = own.open(reader, max_messages=4)
    before = own.fetch(lease, 0, 2)
    assert own.fetch(lease, 0, 4)[0] == [b"a", b"b", b"t", b"c"]
    getattr(broker, end)()
    with restarted(broker) as again:
        repeated = again.advance(reader, incarnation=incarnation, max_messages=9)
        assert (repeated.epoch, repeated.end_tag) == (lease.epoch, lease.end_tag)
        assert again.fetch(repeated, 0, 2) == before
        found, headers = again.fetch(repeated, 0, 4)
        assert (found, tags(headers)) == ([b"a", b"b", b"c"], [1, 2, 4])
        assert again.session().holes == 1


# --- advance ---


def test_advance_accepts_and_leases_anew(client, reader):
    """S4: an advance from the lease's end accepts it and leases the next messages.

    Repeated after a lost answer it has the same answer. A start that is neither begin nor end of
    the lease is refused, naming the tags.
    """
    client.publish(b"a", b"b", b"c", b"d")
    incarnation, lease = client.open(reader, max_messages=2)
    following = client.advance(reader, incarnation=incarnation, start_tag=lease.end_tag)
    assert following.end_tag == 4
    assert client.fetch(following, 2, 4)[0] == [b"c", b"d"]
    assert (client.queue().accepted, client.queue().unacked) == (2, 2)
    again = client.advance(reader, incarnation=incarnation, start_tag=lease.end_tag)
    assert (again.epoch, again.end_tag) == (following.epoch, following.end_tag)
    for start_tag in (0, 1, 9):
        fields = {"incarnation": incarnation, "start_tag": start_tag}
        error, status = refused(client.advance, reader, **fields)
        assert (type(error), status) == (errors.CheckpointMismatchError, "FAILED_PRECONDITION")
        assert error.fields["floor_tag"] == "2"


@pytest.mark.parametrize(
    ("fields", "published"),
    [({}, [[b"a"]]), ({"min_messages": 3, "max_delay_ms": MAX_WAIT_MS}, [[b"a", b"b"], [b"c"]])],
    ids=["any", "a minimum"],
)
def test_advance_waits_for_messages(client, reader, fields, published):
    """S4, K5, K6: an advance waits until a message, or the wanted minimum, is ready."""
    known = {"session": "s", "incarnation": client.advance(reader).incarnation, "holder": reader}
    wanted = {"queues": ["q"], "wait_ms": MAX_WAIT_MS, **fields}
    request = sessions_pb2.AdvanceRequest(**known, **wanted)
    answer = client.sessions.Advance.future(request, timeout=TIMEOUT_S)
    for messages in published:
        client.publish(*messages)
    assert answer.result().end_tag == sum(map(len, published))


# --- holders ---


def test_another_holder_is_refused_while_the_stream_is_open(client):
    """S3, K10: while the liveness stream is open another reader is refused, naming the holder."""
    reader = holder("first")
    client.publish(b"a")
    incarnation, lease = client.open(reader)
    hold = HoldCall(client, lease, reader)
    assert hold.answer.heartbeat_ms == limits.HEARTBEAT_SEND_MS
    assert hold.beat().heartbeat_ms == limits.HEARTBEAT_SEND_MS
    error, status = refused(client.advance, holder("second"), incarnation=incarnation)
    assert (type(error), status) == (errors.AlreadyHeldError, "ALREADY_EXISTS")
    assert (error.fields["holder_host"], error.fields["holder_pid"]) == ("host", "1")
    assert client.session().live is True
    hold.call.cancel()


def test_a_cut_holder_is_replaced_and_fenced(client):
    """S3: two seconds after a cut another reader gets a new epoch, and the old one is fenced."""
    reader, second = holder("first"), holder("second")
    client.publish(b"a", b"b")
    incarnation, lease = client.open(reader)
    hold = HoldCall(client, lease, reader)
    cut_at = time.monotonic()
    cut(client, hold)
    taken = client.advance(second, incarnation=incarnation)
    assert time.monotonic() - cut_at >= limits.HOLDER_CUT_GRACE_MS / 1000
    assert (taken.epoch, taken.end_tag, taken.attaches) == (2, 2, 2)
    error = refused_with_status(errors.FencedError, "ABORTED", client.fetch, lease, 0, 2)
    assert "second" in error.message
    assert client.fetch(taken, 0, 2)[0] == [b"a", b"b"]


def test_a_durable_holder_counts_as_live_after_a_restart(broker, own, reader):
    """S3: a holder without a stream is live for one heartbeat, also after a restart.

    The downtime does not count. A refusal shows the broker's start time, so that a waiting client
    notices a restart.
    """
    incarnation, _ = own.open(reader)

    def started(client):
        named = {"incarnation": incarnation}
        error = refused_with(errors.AlreadyHeldError, client.advance, holder(), **named)
        return int(error.fields["broker_started_us"])

    first = started(own)
    assert started(own) == first
    with killed(broker) as again:
        assert started(again) > first
        assert again.advance(reader, incarnation=incarnation).epoch == 1


def test_a_stranger_cannot_hold(client, reader):
    """S3: a liveness stream with another token is refused, and a token that is not 16 bytes."""
    _, lease = client.open(reader)
    refused_with(errors.FencedError, HoldCall, client, lease, holder())
    refused_with(errors.InvalidArgumentError, client.advance, holder(token=b"short"))


# --- opening ---


def test_an_opening_that_waits_does_not_prove_itself(client):
    """S9: an opening's own waiting does not prove its incarnation."""
    client.advance(holder(), open_and_lease=True, wait_ms=100)
    assert client.session().proven is False


@pytest.mark.parametrize("leases", [False, True])
def test_an_opening_whose_answer_was_lost_leaves_one_session(client, reader, monkeypatch, leases):
    """S4, S9: the client repeats it, and gets the same messages, without a name of its own, too."""
    client.publish(b"a", b"b")
    unary, answers = calls.unary, []

    def first_lost(*arguments):
        answers.append(unary(*arguments))
        if len(answers) == 1:
            raise lost
        return answers[-1]

    lost = grpc.RpcError()
    lost.code, lost.details = lambda: grpc.StatusCode.UNAVAILABLE, lambda: "The answer was lost."
    lost.trailing_metadata = tuple
    monkeypatch.setattr(calls, "unary", first_lost)
    request = sessions_pb2.AdvanceRequest(holder=reader, queues=["q"], open_and_lease=leases)
    opened = Session(client.endpoint).advance(request)
    assert (len(answers), opened.end_tag) == (2, 2 if leases else 0)
    info = client.session("")
    assert (info.session, info.incarnation, info.leased) == (
        opened.session,
        opened.incarnation,
        opened.end_tag,
    )
    assert opened.session.startswith("anonymous-")


def test_list_shows_who_holds_and_which_query_reads(client):
    """S8, S3: an operator sees holder, lease and the query that fetched last, but never the token.

    A refused fetch of a replaced reader does not change them.
    """
    reader = holder("app")
    client.publish(b"a", b"b")
    incarnation, lease = client.open(reader)
    client.fetch(lease, 0, 2, query_id="query", run_id="run", batch_id=7, label="0.1")
    for stale in ({"incarnation": "gone"}, {"epoch": lease.epoch + 1}):
        named = {"session": "s", "incarnation": incarnation, "epoch": lease.epoch, **stale}
        with pytest.raises(grpc.RpcError):
            client.fetch(sessions_pb2.AdvanceResponse(**named), 0, 1, query_id="other", batch_id=8)
    info = client.session()
    assert (info.incarnation, list(info.queues), info.epoch) == (incarnation, ["q"], 1)
    assert (info.floor_tag, info.end_tag, info.leased, info.proven) == (0, 2, 2, True)
    assert (info.holder.application, info.holder.token) == ("app", b"")
    assert (info.query_id, info.run_id, info.batch_id) == ("query", "run", 7)


# --- operators ---


def test_an_opening_names_who_is_absent_and_holds_messages(client, reader):
    """S9: an opening names absent sessions that hold its queues' messages, and the remedy."""
    client.publish(b"a", b"b")
    lost = client.advance(reader, session="", open_and_lease=True)
    (warning,) = client.advance(holder(), session="", open_and_lease=True).warnings
    assert f"session '{lost.session}' has held 2 messages of these queues for 0:00:" in warning
    assert f"`ackq session release {lost.session}`" in warning
    hold = HoldCall(client, lost, reader)
    opened = client.advance(holder(), session="other")
    assert (lost.session in opened.other_sessions, list(opened.warnings)) == (True, [])
    cut(client, hold, lost.session)
    opened = client.advance(holder(), session="another")
    assert (lost.session in opened.other_sessions, len(opened.warnings)) == (False, 1)
