"""Outcomes before the core sees them: coalesced, bounded, sealed."""

import asyncio
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import AckqError, LimitError
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


HALVES = ({}, {"query_id": "q"}, {"run_id": "r"})
STAGE = pb.StageOutcomesRequest


def coalesced(*requests):
    """The coalesced outcome groups of the requests, as plain values."""
    collected = Collected()
    for groups in requests:
        collected.add(pb.StageOutcomesRequest(groups=groups))
    return {tuple(disposition): list(tags) for disposition, tags in collected.groups()}


def read(request):
    """Reads a stage's stream into a command, running its thread work in the event loop."""

    async def run(work):
        return work()

    waiting = [request]

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


WHOLE = {"first_tag": [1], "last_tag": [1]}
SETTLEMENTS = [
    ({"outcome": ACCEPTED, **WHOLE}, "can only reject or release"),
    ({"outcome": 0, **WHOLE}, "can only reject or release"),
    ({"outcome": REJECTED}, "names no tags"),
    ({"outcome": REJECTED, "first_tag": [1, 2], "last_tag": [1]}, "2 first and 1 last"),
    ({"outcome": REJECTED, "first_tag": [0], "last_tag": [1]}, "no tags 0-1"),
    ({"outcome": REJECTED, "first_tag": [3], "last_tag": [2]}, "no tags 3-2"),
    ({"outcome": REJECTED, "first_tag": TOO_MANY, "last_tag": TOO_MANY}, "several calls"),
]
REFUSED = [
    (coalesced, [group(0, 1)], "accepted, failed, rejected or released"),
    (coalesced, [group(FAILED, 1, delay_ms=limits.MAX_TTL_MS + 1)], "too long"),
    # A stream without seal stages nothing, as a cut one looks like an ended one.
    (read, None, "begins with the owner of the lease"),
    (read, STAGE(owner=OWNER, stage_id=b"x", seal=True), "16 random bytes"),
    (read, STAGE(stage_id=ID, seal=True), "which lease"),
    (read, STAGE(owner=OWNER, stage_id=ID), "without a seal"),
    *((owner_of, pb.LeaseOwner(**half), "the option session") for half in HALVES),
    (owner_of, pb.LeaseOwner(query_id="q" * 10_000, run_id="r"), "query id"),
    *(
        (settlement_of, pb.SettleSessionRequest(session="s", **fields), told)
        for fields, told in SETTLEMENTS
    ),
]


@pytest.mark.parametrize(("call", "request_", "told"), REFUSED)
def test_what_is_refused(call, request_, told):
    """S6, S8, K8, I6: an unknown outcome, an incomplete owner, a stream without a seal, and more.

    The refusal names the cause, and the remedy if there is one.
    """
    with pytest.raises(AckqError, match=told):
        call(request_)


@pytest.mark.parametrize("counted", ["tags", "groups", "bytes"])
def test_a_stage_that_is_too_large(monkeypatch, counted):
    """I6, S6: it is refused, naming the limit and the remedy."""
    monkeypatch.setattr(limits, f"MAX_OUTCOME_STAGE_{counted.upper()}", 4)
    with pytest.raises(LimitError, match=f"more than 4 {counted}.*more partitions"):
        coalesced([group(FAILED, tag) for tag in range(1, 6)])


def test_an_owner_may_be_a_run_of_a_query():
    """S6, K8: a lease's owner is a session, or a run of a query with its batch."""
    owner = owner_of(pb.LeaseOwner(query_id="q", run_id="r", batch_id=3))
    assert owner == commands.LeaseOwner("", "q", "r", 3)
