"""Validation of outcomes: a task's stage (S6), an operator's settlement (S8).

Invariant: only a sealed stream makes a stage. A broken stream looks like a half-closed one, so
without a seal the outcomes of a killed task would seem complete.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import starmap
from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError
from ackq.outcomes import Disposition, Outcome
from ackq.v1 import sessions_pb2 as pb
from ackq.wire.answers import copied
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.core import commands
from ackq_broker.core.columns import bitmaps
from ackq_broker.engine.engine import Engine
from ackq_broker.engine.in_flight import StreamBytes
from ackq_broker.security.callers import current
from ackq_broker.service.transport.fields import (
    check_id,
    check_identifier,
    decode_disposition,
    shorten,
)
from ackq_broker.service.transport.rpc import Read

_TAG_BYTES: Final = 8
_BY_OPERATOR: Final = (Outcome.REJECTED, Outcome.RELEASED)


class Collected:
    """The outcomes of a stage so far, in order of arrival."""

    def __init__(self) -> None:
        self._came: list[tuple[Disposition, BitMap64]] = []
        self._bytes = 0

    def add(self, request: pb.StageOutcomesRequest) -> None:
        """Adds the groups of one request; no Python work per tag.

        Raises:
            InvalidArgumentError: An outcome is unknown, or a delay too long.
            LimitError: The stage has more groups or bytes than a task may stage.
        """
        self._bytes += request.ByteSize()
        _check("bytes", self._bytes, limits.MAX_OUTCOME_STAGE_BYTES)
        _check("groups", len(self._came) + len(request.groups), limits.MAX_OUTCOME_STAGE_GROUPS)
        self._came += [(decode_disposition(group), _tags(group)) for group in request.groups]

    def groups(self) -> tuple[commands.OutcomeGroup, ...]:
        """One group for each disposition; the last outcome of a repeated tag counts.

        Raises:
            LimitError: The stage has more tags than a task may stage.
        """
        groups = bitmaps.last_wins(self._came)
        _check("tags", sum(map(len, groups.values())), limits.MAX_OUTCOME_STAGE_TAGS)
        return tuple(starmap(commands.OutcomeGroup, groups.items()))


async def read_stage(engine: Engine, read: Read[pb.StageOutcomesRequest]) -> commands.StageOutcomes:
    """Reads one whole stream of staged outcomes and returns its command.

    Raises:
        InvalidArgumentError: The stream has no seal, or the stage id or the owner is invalid.
        LimitError: The stream exceeds the bounds of a stage.
    """
    with engine.in_flight.stream(brings=True) as in_flight:
        return await _read_stage(engine, read, in_flight)


async def _read_stage(
    engine: Engine, read: Read[pb.StageOutcomesRequest], in_flight: StreamBytes
) -> commands.StageOutcomes:
    first = request = await in_flight.next(read)
    if first is None:
        raise InvalidArgumentError(
            "A stream of outcomes begins with the owner of the lease that they settle."
        )
    check_id("A stage id", first.stage_id)
    owner, collected = owner_of(first.owner), Collected()
    while True:
        if request is None:
            raise InvalidArgumentError(
                "The outcomes ended without a seal; none of them takes effect."
            )
        in_flight.add(request.ByteSize())
        # Not on the event loop: a large request takes milliseconds.
        await engine.run(partial(collected.add, request))
        if request.seal:
            break
        request = await in_flight.next(read)
    return commands.StageOutcomes(
        first.stage_id,
        owner,
        shorten(first.label),
        first.discard,
        await engine.run(collected.groups),
    )


def owner_of(owner: pb.LeaseOwner) -> commands.LeaseOwner:
    """The owner of the lease that a settle call refers to.

    Raises:
        InvalidArgumentError: It names neither a session nor a query and run, or a name is too long.
    """
    if not owner.session and not (owner.query_id and owner.run_id):
        raise InvalidArgumentError(
            "The call names neither a session nor a query and its run, so the broker does not "
            "know which lease it settles. Call it from foreachBatch, or name the session with the "
            "option session."
        )
    for what, text in (
        ("session", owner.session),
        ("query id", owner.query_id),
        ("run id", owner.run_id),
    ):
        check_identifier(what, text)
    return copied(commands.LeaseOwner, owner, user=current.get().user)


def _check(what: str, found: int, most: int) -> None:
    if found > most:
        raise LimitError(
            f"The task's outcomes have more than {most} {what}, the most that one stage takes."
            " Settle fewer rows in a task (more partitions), with fewer different reasons: one is"
            " the kind of fault, not the value.",
            limit=most,
        )


def settlement_of(request: pb.SettleSessionRequest) -> commands.SettleLease:
    """Builds the command of an operator's settlement.

    Raises:
        InvalidArgumentError: It names no tags, or is neither a rejection nor a release.
        LimitError: It names too many ranges of tags.
    """
    outcome = FROM_WIRE.get(request.outcome)
    if outcome not in _BY_OPERATOR:
        raise InvalidArgumentError(
            "An operator can only reject or release messages of a lease; only the checkpoint of "
            "its query proves that messages are accepted.",
            session=request.session,
        )
    if len(request.first_tag) != len(request.last_tag):
        raise InvalidArgumentError(
            f"The call has {len(request.first_tag)} first and {len(request.last_tag)} last tags;"
            " a range has one of each."
        )
    if not request.first_tag:
        raise InvalidArgumentError(
            f"The call names no tags of session '{request.session}'. See `ackq session lease"
            f" {request.session}`.",
            session=request.session,
        )
    if len(request.first_tag) > limits.MAX_SETTLE_RANGES:
        raise LimitError(
            f"The call names {len(request.first_tag)} ranges of tags; at most"
            f" {limits.MAX_SETTLE_RANGES} are allowed. Settle them in several calls.",
            limit=limits.MAX_SETTLE_RANGES,
        )
    ranges = tuple(zip(request.first_tag, request.last_tag, strict=True))
    for first, last in ranges:
        if not 1 <= first <= last:
            raise InvalidArgumentError(
                f"There are no tags {first}-{last}; a range ends where it begins or later, and"
                " tags begin at 1."
            )
    return copied(
        commands.SettleLease,
        request,
        outcome=outcome,
        ranges=ranges,
        reason=shorten(request.reason) if outcome is Outcome.REJECTED else "",
    )


def _tags(group: pb.OutcomeGroup) -> BitMap64:
    """The tags of a group, read from its serialized bytes.

    They are the last bytes of the group as protobuf writes it, 8 for each: this takes a third of
    the time of reading them one by one (1 M tags: 13 ms against 38).
    """
    if not group.tags:
        return BitMap64()
    group.DiscardUnknownFields()
    return BitMap64(array("Q", group.SerializeToString()[-_TAG_BYTES * len(group.tags) :]))
