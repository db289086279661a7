"""Outcomes before the core sees them: coalesced, bounded, sealed."""

import asyncio
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError, LimitError
from ackq.outcomes import Outcome
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core import commands
from ackq_broker.engine.in_flight import InFlight
from ackq_broker.service.sessions.outcomes import Collected, owner_of, read_stage, settlement_of

ACCEPTED, FAILED, REJECTED, RELEASED = 1, 2, 3, 4
ID = bytes(16)
TOO_MANY = range(1, limits.MAX_SETTLE_RANGES + 2)
OWNER = pb.LeaseOwner(session="s")


def group(outcome, *tags, **fields):
    return pb.OutcomeGroup(outcome=outcome, tags=tags, **fields)


FAILURES = [group(FAILED, tag) for tag in range(1, 6)]


def coalesced(*requests):
    """The coalesced outcome groups of the requests, as plain values."""
    collected = Collected()
    for groups in requests:
        collected.add(pb.StageOutcomesRequest(groups=groups))
    return {tuple(disposition): list(tags) for disposition, tags in collected.groups()}


def read(*requests):
    """Reads a stage's stream into a command, running its thread work in the event loop."""

    async def run(work):
        return work()

    waiting = list(requests)

    async def next_request():
        return waiting.pop(0) if waiting else None

    in_flight = InFlight(limits.MIN_MEMORY_BYTES, lambda: 0, lambda: 0, lambda: 0.0)
    return asyncio.run(read_stage(SimpleNamespace(run=run, in_flight=in_flight), next_request))


def test_the_last_outcome_of_a_tag_wins():
    """S6, C14: the last outcome of a tag in a stage wins, also when it takes an outcome back.

    A released message has no reason, a rejected one no delay.
    """
    assert coalesced(
        [group(REJECTED, 1, 2, 3, reason="bad")],
        [group(FAILED, 2), group(ACCEPTED, 3), group(FAILED, 3), group(ACCEPTED, 3)],
    ) == {
        (Outcome.REJECTED, "bad", 0): [1],
        (Outcome.FAILED, "", 0): [2],
        (Outcome.ACCEPTED, "", 0): [3],
    }
    every = {"reason": "why", "delay_ms": 5}
    assert coalesced([group(outcome, outcome, **every) for outcome in (1, 2, 3, 4)]) == {
        (Outcome.ACCEPTED, "", 0): [1],
        (Outcome.FAILED, "why", 5): [2],
        (Outcome.REJECTED, "why", 0): [3],
        (Outcome.RELEASED, "", 5): [4],
    }


def test_what_a_newer_client_adds_is_not_a_tag():
    """S6: an unknown field that a newer client adds to a group is not read as a tag."""
    newer = group(REJECTED, 1, 2, 2**40).SerializeToString() + bytes((15 << 3 | 2, 8)) + b"unknown!"
    collected = Collected()
    collected.add(pb.StageOutcomesRequest(groups=[pb.OutcomeGroup.FromString(newer)]))
    (found,) = collected.groups()
    assert found.tags == BitMap64((1, 2, 2**40))


@pytest.mark.parametrize(
    ("limit", "groups", "problem"),
    [
        ("MAX_OUTCOME_STAGE_TAGS", FAILURES, "more than 4 tags.*more partitions"),
        ("MAX_OUTCOME_STAGE_GROUPS", FAILURES, "more than 4 groups.*more partitions"),
        ("MAX_OUTCOME_STAGE_BYTES", FAILURES, "more than 4 bytes.*more partitions"),
        ("", [group(0, 1)], "accepted, failed, rejected or released"),
        ("", [group(FAILED, 1, delay_ms=limits.MAX_TTL_MS + 1)], "too long"),
    ],
)
def test_a_stage_that_is_refused(monkeypatch, limit, groups, problem):
    """I6, S6: too large a stage, naming limit and remedy; an unknown outcome; too long a delay."""
    if limit:
        monkeypatch.setattr(limits, limit, 4)
    with pytest.raises(LimitError if limit else InvalidArgumentError, match=problem):
        coalesced(groups)


@pytest.mark.parametrize(
    ("requests", "problem"),
    [
        ([], "begins with the owner of the lease"),
        ([pb.StageOutcomesRequest(owner=OWNER, stage_id=b"x", seal=True)], "16 random bytes"),
        ([pb.StageOutcomesRequest(stage_id=ID, seal=True)], "which lease"),
        ([pb.StageOutcomesRequest(owner=OWNER, stage_id=ID)], "without a seal"),
    ],
)
def test_other_streams_stage_nothing(requests, problem):
    """S6: an outcome stream without seal stages nothing, as a cut one looks like an ended one."""
    with pytest.raises(InvalidArgumentError, match=problem):
        read(*requests)


def test_the_owner_is_a_session_or_a_run_of_a_query():
    """S6, K8: an incomplete lease owner is refused, naming the remedy."""
    assert owner_of(pb.LeaseOwner(query_id="q", run_id="r", batch_id=3)) == commands.LeaseOwner(
        "", "q", "r", 3
    )
    for half in (pb.LeaseOwner(), pb.LeaseOwner(query_id="q"), pb.LeaseOwner(run_id="r")):
        with pytest.raises(InvalidArgumentError, match="the option session"):
            owner_of(half)
    with pytest.raises(InvalidArgumentError, match="query id"):
        owner_of(pb.LeaseOwner(query_id="q" * 10_000, run_id="r"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"outcome": ACCEPTED, "first_tag": [1], "last_tag": [1]}, "can only reject or release"),
        ({"outcome": 0, "first_tag": [1], "last_tag": [1]}, "can only reject or release"),
        ({"outcome": REJECTED}, "names no tags"),
        ({"outcome": REJECTED, "first_tag": [1, 2], "last_tag": [1]}, "2 first and 1 last"),
        ({"outcome": REJECTED, "first_tag": [0], "last_tag": [1]}, "no tags 0-1"),
        ({"outcome": REJECTED, "first_tag": [3], "last_tag": [2]}, "no tags 3-2"),
        ({"outcome": REJECTED, "first_tag": TOO_MANY, "last_tag": TOO_MANY}, "several calls"),
    ],
)
def test_other_settlements_are_refused(fields, problem):
    """S8, I6: an operator's settlement that is invalid, or too large, is refused with the cause."""
    with pytest.raises(AckqError, match=problem):
        settlement_of(pb.SettleSessionRequest(session="s", **fields))
