"""Settlement from a query and by operators, over the wire against a real broker process."""

import secrets
import threading
from contextlib import contextmanager

import grpc
import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Session, outcome_group
from ackq.v1 import admin_pb2, sessions_pb2
from ackq_broker.service.blocks import broker_headers
from tests.fakes.blocks import rows
from tests.fakes.raw_client import (
    TIMEOUT_S,
    Client,
    error_of,
    holder,
    killed,
    refused,
    refused_with,
    refused_with_status,
    restarted,
    tags,
)
from tests.wire.sessions.test_sessions import HoldCall

FAILED, REJECTED, RELEASED = 2, 3, 4
A, B = b"a" * 16, b"b" * 16
TAGS = pa.array(range(11), pa.int64())
QUERY = {"query_id": "query", "run_id": "run", "batch_id": 7}
OWNER = sessions_pb2.LeaseOwner(**QUERY)


@pytest.fixture(autouse=True)
def _query_of_its_own():
    """Gives each test's query its own id, as the broker knows the lease a batch has read (S11)."""
    QUERY["query_id"] = OWNER.query_id = secrets.token_hex(8)


def leased(client, *messages):
    """A queue with a dead-letter queue, and a lease of these messages read by a query's batch."""
    client.declare("dead")
    client.delete()
    client.declare(dead_letter_queue="dead", delivery_limit=5, redelivery_delay_ms=1)
    client.publish(*messages)
    reader = holder()
    incarnation, lease = client.open(reader)
    client.fetch(lease, 0, lease.end_tag, **QUERY)
    return reader, incarnation, lease


def accept(client, reader, lease):
    return client.advance(reader, incarnation=lease.incarnation, start_tag=lease.end_tag)


def dead_headers(client):
    """The headers of each dead letter, by body."""
    found = {}
    request = admin_pb2.BrowseRequest(queue="dead")
    for frame in client.admin.Browse(request, timeout=TIMEOUT_S):
        columns = rows(frame.block)
        found.update(zip(columns["body"], map(dict, columns["headers"]), strict=True))
    return found


# --- from a query ---


def test_outcomes_of_a_query_apply_with_the_accept(client):
    """S6, K8: outcomes staged by tasks and committed by the driver apply with the accept."""
    reader, _, lease = leased(client, b"a", b"b", b"c", b"d")
    staged = client.stage_outcomes(
        A,
        (REJECTED, [1, 2], {"reason": "not JSON"}),
        (RELEASED, [2], {"delay_ms": 60_000}),
        owner=OWNER,
    )
    assert staged == 2
    assert client.stage_outcomes(B, (FAILED, [3], {"delay_ms": 60_000}), owner=OWNER) == 1
    committed = client.commit_outcomes((A, 2), (B, 1), owner=OWNER)
    assert (committed.tags, committed.accepted_before) == (3, False)
    assert client.session().settled == 3
    assert (client.queue().unacked, client.queue("dead").ready) == (4, 0)
    accept(client, reader, lease)
    assert (client.queue().unacked, client.queue().delayed, client.queue().accepted) == (0, 2, 1)
    (headers,) = dead_headers(client).values()
    assert headers[broker_headers.REASON] == "not JSON"
    assert headers[broker_headers.SESSION] == "s"
    assert headers[broker_headers.BATCH] == "7"
    assert headers[broker_headers.QUEUE] == "q"


def test_outcomes_survive_kills_between_all_steps(broker, own):
    """S6, Q7: staged and committed outcomes and the note of the reader survive a kill -9."""
    reader, _, lease = leased(own, b"a", b"b")
    assert own.stage_outcomes(A, (REJECTED, [2], {"reason": "bad"}), owner=OWNER) == 1
    with killed(broker) as again:
        assert again.stage_outcomes(A, (REJECTED, [2], {"reason": "bad"}), owner=OWNER) == 1
        assert again.commit_outcomes((A, 1), owner=OWNER).tags == 1
    with killed(broker) as again:
        assert again.commit_outcomes((A, 1), owner=OWNER).tags == 1
        assert again.session().settled == 1
        accept(again, reader, lease)
        assert list(dead_headers(again)) == [b"b"]
        # A replay after a lost commit entry: the same rows, and its settle call changes nothing.
        assert again.fetch(lease, 0, 2)[0] == [b"a", b"b"]
        again.stage_outcomes(B, (REJECTED, [1], {}), owner=OWNER)
        assert again.commit_outcomes((B, 1), owner=OWNER).accepted_before is True
    with restarted(broker) as again:
        assert list(dead_headers(again)) == [b"b"]
        assert (again.queue().ready, again.queue().unacked) == (0, 0)


def test_a_commit_of_what_is_not_there_changes_nothing(client):
    """S6: if a stage is missing or short, the commit is refused and no outcome applies."""
    reader, _, lease = leased(client, b"a", b"b")
    client.stage_outcomes(A, (REJECTED, [1], {}), owner=OWNER)
    for stages in (((A, 1), (B, 1)), ((A, 2),)):
        error, status = refused(client.commit_outcomes, *stages, owner=OWNER)
        assert (type(error), status) == (errors.StageMismatchError, "FAILED_PRECONDITION")
    request = sessions_pb2.AbortOutcomesRequest(stage_ids=[A, B])
    assert client.sessions.AbortOutcomes(request, timeout=TIMEOUT_S).dropped == 1
    accept(client, reader, lease)
    assert client.queue("dead").ready == 0


def test_bad_outcomes_are_refused(client):
    """S6, K8: a tag outside the lease, and a rejection without dead-letter queue, are refused.

    So is a settle call for a batch that read no lease, naming option session.
    """
    leased(client, b"a")
    client.declare("plain")
    client.publish(b"x", queue="plain")
    client.open(holder(), session="t", queues=["plain"])
    rejected, other = (REJECTED, [1], {}), sessions_pb2.LeaseOwner(session="t")
    for outcome, owner, named in (((FAILED, [1, 2], {}), OWNER, "2"), (rejected, other, "plain")):
        error, _ = refused(client.stage_outcomes, A, outcome, owner=owner)
        assert isinstance(error, errors.PreconditionFailedError)
        assert named in error.message
    assert client.stage_outcomes(A, rejected, owner=other, discard=True) == 1
    unread = sessions_pb2.LeaseOwner(query_id=OWNER.query_id, run_id="run", batch_id=8)
    error, status = refused(client.stage_outcomes, A, rejected, owner=unread)
    assert (type(error), status) == (errors.SessionNotFoundError, "NOT_FOUND")
    assert "session" in error.message


def test_who_was_replaced_cannot_settle(client):
    """S3, S6: a run, and a program without run that names its epoch, cannot settle once fenced."""
    _, _, lease = leased(client, b"a", b"b")
    owner = sessions_pb2.LeaseOwner(session="s", epoch=lease.epoch)
    said = (REJECTED, [1], {"reason": "bad"})
    assert client.stage_outcomes(A, said, owner=owner) == 1
    client.settle_session(RELEASED, (2, 2), fence=True)
    refused_with(errors.FencedError, client.stage_outcomes, B, said, owner=owner)
    refused_with(errors.FencedError, client.commit_outcomes, owner=owner)
    refused_with_status(errors.FencedError, "ABORTED", client.stage_outcomes, B, said, owner=OWNER)
    assert client.stage_outcomes(B, said) == 1


@contextmanager
def gone(broker):
    """Kills the broker, and restarts it while calls are retried."""
    broker.kill()
    back = threading.Timer(0.3, broker.restart)
    back.start()
    yield
    back.join()


def test_settlement_by_the_client_outlives_killed_brokers(broker, own):
    """S6, K8: stage, commit and accept are retried over kills, and take effect once."""
    reader, incarnation, lease = leased(own, *(b"%d" % number for number in range(10)))
    before, session = own.fetch(lease, 0, 10), Session(broker.endpoint)
    first = [[outcome_group("rejected", TAGS[2:4], "bad")], [outcome_group("failed", TAGS[4:5])]]
    second = [
        [outcome_group("accepted", TAGS[3:4]), outcome_group("rejected", TAGS[9:10], "worse")]
    ]
    with gone(broker):
        stages = [
            session.stage_outcomes(OWNER, secrets.token_bytes(16), f"{at}", groups)
            for at, groups in enumerate((first, second))
        ]
    assert [stage.tags for stage in stages] == [3, 2]
    with gone(broker):
        assert session.commit_outcomes(OWNER, stages).tags == 5
    with Client(broker.endpoint) as again:
        # The second task took back tag 3's outcome.
        assert again.session().settled == 3
    following = {"session": "s", "queues": ["q"], "holder": reader, "incarnation": incarnation}
    with gone(broker):
        session.advance(sessions_pb2.AdvanceRequest(**following, start_tag=lease.end_tag))
    with Client(broker.endpoint) as again:
        found = {body: each[broker_headers.REASON] for body, each in dead_headers(again).items()}
        assert found == {b"1": "bad", b"8": "worse"}
        info = again.queue()
        assert (info.accepted, info.unacked, info.ready + info.delayed) == (7, 0, 1)
        # K2: the batch is run again after its commit entry was lost, and has the same rows.
        assert again.fetch(lease, 0, 10) == before


# --- by operators ---


def test_an_operator_frees_a_poisoned_batch(client):
    """S8: an operator rejects a tag by `fence`, and the next attach has the batch without it."""
    reader, incarnation, lease = leased(client, b"a", b"bad", b"c")
    error, status = refused(client.settle_session, REJECTED, (2, 2), reason="poison")
    assert (type(error), status) == (errors.AlreadyHeldError, "ALREADY_EXISTS")
    hold = HoldCall(client, lease, reader)
    done = client.settle_session(REJECTED, (2, 2), reason="poison", fence=True)
    assert (done.settled, done.dead_lettered, done.epoch) == (1, 1, 2)
    refused_with(errors.FencedError, next, hold.call)
    refused_with(errors.FencedError, client.fetch, lease, 0, 3)
    assert dead_headers(client)[b"bad"][broker_headers.REASON] == "poison"
    info = client.session()
    assert (info.live, info.leased, dict(info.holes_by_reason)) == (False, 2, {"settled": 1})
    # The ended process cannot go on; another one attaches at once, with the same tags.
    refused_with(errors.FencedError, client.advance, reader, incarnation=incarnation)
    again = client.advance(holder("second"), incarnation=incarnation)
    assert again.end_tag == 3
    found, headers = client.fetch(again, 0, 3)
    assert (found, tags(headers)) == ([b"a", b"c"], [1, 3])


def test_a_bad_settlement_is_refused(client):
    """S8: an operator's settlement of a tag outside the lease, or by accepting, is refused."""
    leased(client, b"a")
    error, _ = refused(client.settle_session, REJECTED, (1, 2), fence=True)
    assert isinstance(error, errors.PreconditionFailedError)
    refused_with(errors.InvalidArgumentError, client.settle_session, 1, (1, 1), fence=True)
    assert client.session().epoch == 1


# --- readers ---


def test_a_pattern_finds_queues_that_come(client, reader):
    """S10: a new queue that matches a session's pattern joins at the next call."""
    client.declare("orders-1")
    client.publish(b"a", queue="orders-1")
    names = {"queues": [], "queue_pattern": "orders-*"}
    incarnation, lease = client.open(reader, **names)
    assert client.session().queue_pattern == "orders-*"
    client.declare("orders-2")
    client.publish(b"b", queue="orders-2")
    following = client.advance(reader, incarnation=incarnation, start_tag=lease.end_tag, **names)
    assert client.fetch(following, 1, 2)[0] == [b"b"]
    assert list(client.session().queues) == ["orders-1", "orders-2"]


@pytest.mark.parametrize("how", ["cancel", "half-close"])
def test_an_unsealed_stream_however_it_ends(client, how):
    """S6: the outcomes of a killed task are not a stage, however its stream ended."""
    leased(client, b"a")
    requests = [
        sessions_pb2.StageOutcomesRequest(owner=OWNER, stage_id=A),
        sessions_pb2.StageOutcomesRequest(
            groups=[sessions_pb2.OutcomeGroup(outcome=REJECTED, tags=[1])]
        ),
    ]
    call = client.sessions.StageOutcomes.future(iter(requests), timeout=TIMEOUT_S)
    if how == "cancel":
        call.cancel()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)) as ended:
        call.result()
    if how == "half-close":
        assert type(error_of(ended.value)[0]) is errors.InvalidArgumentError
    refused_with(errors.StageMismatchError, client.commit_outcomes, (A, 1), owner=OWNER)
    assert client.stage_outcomes(A, (REJECTED, [1], {}), owner=OWNER) == 1
