"""Settlement from a query, over the wire against a real broker process."""

import secrets

import grpc
import pytest

from ackq import errors
from ackq.v1 import sessions_pb2
from tests.fakes.raw_client import TIMEOUT_S, error_of, holder, killed, refused_with, restarted

REJECTED = 3
A, B = b"a" * 16, b"b" * 16
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
    _, lease = client.open(reader)
    client.fetch(lease, 0, lease.end_tag, **QUERY)
    return reader, lease


def accept(client, reader, lease):
    return client.advance(reader, incarnation=lease.incarnation, start_tag=lease.end_tag)


def test_outcomes_survive_kills_between_all_steps(broker, own):
    """S6, Q7: staged and committed outcomes and the note of the reader survive a kill -9."""
    reader, lease = leased(own, b"a", b"b")
    assert own.stage_outcomes(A, (REJECTED, [2], {"reason": "bad"}), owner=OWNER) == 1
    with killed(broker) as again:
        assert again.stage_outcomes(A, (REJECTED, [2], {"reason": "bad"}), owner=OWNER) == 1
        assert again.commit_outcomes((A, 1), owner=OWNER).tags == 1
    with killed(broker) as again:
        assert again.commit_outcomes((A, 1), owner=OWNER).tags == 1
        assert again.session().settled == 1
        accept(again, reader, lease)
        assert again.browse("dead")[0] == [b"b"]
        # A replay after a lost commit entry: the same rows, and its settle call changes nothing.
        assert again.fetch(lease, 0, 2)[0] == [b"a", b"b"]
        again.stage_outcomes(B, (REJECTED, [1], {}), owner=OWNER)
        assert again.commit_outcomes((B, 1), owner=OWNER).accepted_before is True
    with restarted(broker) as again:
        assert again.browse("dead")[0] == [b"b"]
        assert (again.queue().ready, again.queue().unacked) == (0, 0)


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
