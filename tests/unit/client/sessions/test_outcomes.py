"""Outcomes staged and committed against a scripted broker: requests and their repetition."""

import pyarrow as pa
import pytest

from ackq import errors, limits
from ackq.client import OutcomeStage, Session, outcome_group
from ackq.v1 import sessions_pb2 as pb

GONE = errors.BrokerUnavailableError("The broker is shutting down.")
OWNER = pb.LeaseOwner(query_id="query", run_id="run", batch_id=7)
ID = bytes(range(16))


@pytest.fixture
def session(broker):
    return Session(broker.endpoint)


def tags(*values):
    return pa.array(values, pa.int64())


def test_stage_is_one_sealed_stream(broker, session):
    """S6: the first request opens, the last seals, and the broker answers the count.

    A restarted broker gets the whole stage again, though its iterator is used up.
    """
    broker.sessions.outcome_stages.extend([GONE, pb.StageOutcomesResponse(tags=3)])
    first = outcome_group("rejected", tags(1, 2), "bad")
    second = outcome_group("failed", tags(3))
    parts = ([each] for each in (first, second))
    staged = session.stage_outcomes(OWNER, ID, "0.1", parts, discard=True)
    assert staged == OutcomeStage(ID, 3)
    opening = {"owner": OWNER, "stage_id": ID, "label": "0.1", "discard": True}
    stream = [
        pb.StageOutcomesRequest(groups=[first], **opening),
        pb.StageOutcomesRequest(groups=[second], seal=True),
    ]
    assert broker.sessions.outcome_streams == [stream, stream]


def test_stage_is_bounded(broker, session, monkeypatch):
    """I6: a stage above its limit is refused with the remedy before anything is sent."""
    monkeypatch.setattr(limits, "MAX_OUTCOME_STAGE_BYTES", 1000)
    parts = ([outcome_group("rejected", tags(*range(1, 100)))] for _ in range(2))
    with pytest.raises(errors.LimitError, match="more partitions"):
        session.stage_outcomes(OWNER, ID, "0.1", parts)
    with pytest.raises(errors.InvalidArgumentError, match="16 random bytes, not 2"):
        session.stage_outcomes(OWNER, b"id", "", [])
    assert broker.sessions.outcome_streams == []


def test_commit_is_tried_again(broker, session):
    """S6: a commit names its stages with their counts; being idempotent, it is retried."""
    broker.sessions.operations.extend([GONE, pb.CommitOutcomesResponse(tags=3)])
    stages = [OutcomeStage(ID, 2), OutcomeStage(ID[::-1], 1)]
    assert session.commit_outcomes(OWNER, stages).tags == 3
    first, second = broker.sessions.operation_requests
    assert first == second
    assert first.owner == OWNER
    assert [(each.stage_id, each.tags) for each in first.stages] == [(ID, 2), (ID[::-1], 1)]
