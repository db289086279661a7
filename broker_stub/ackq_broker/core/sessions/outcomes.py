"""Outcomes from a query (S6): tasks stage them, the driver's commit makes a settle call effective.

Invariant: a stage counts once a commit names it, in the epoch that staged it, and takes effect in
the record that accepts the lease; of several epochs, the newest one that committed any counts.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq.errors import (
    InvalidArgumentError,
    LimitError,
    PreconditionFailedError,
    SessionNotFoundError,
    StageMismatchError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import ACCEPT, Outcome
from ackq_broker.core import commands, records
from ackq_broker.core.checks import check_duration, plural
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import CommittedOutcomes, Decision
from ackq_broker.core.fields import TagOutcome
from ackq_broker.core.queues.rejections import dead_letter_queue
from ackq_broker.core.sessions import readers
from ackq_broker.core.sessions.readers import OwnedLease
from ackq_broker.core.state.state import Lease, Outcomes, OutcomeStage, Session, State

# Bounds of one lease, committed or not: a stage is one task's, and an entry costs about 1 KB.
MAX_STAGES: Final = 16_384
MAX_TAG_OUTCOMES: Final = 4 * limits.MAX_OUTCOME_STAGE_GROUPS


def stage(state: State, command: commands.StageOutcomes, _now_us: int) -> Decision:
    """S6: stages the outcomes of one task, all or none; they have no effect until a commit."""
    groups = command.groups
    tags = BitMap64.union(BitMap64(), *(group.tags for group in groups))
    assert len(tags) == sum(len(group.tags) for group in groups), "a tag has one outcome in a stage"
    found = readers.find(state, command.owner)
    if not found.known:
        readers.check_has_read(state, found.session, command.owner)
    staged = _staged(state, found, command.stage_id)
    if staged is not None:
        return Decision(reply=staged)
    if _of_kept(found, tags):
        return _stage_kept(found.session, command, tags)
    _check_inside(found, tags)
    for disposition, _ in groups:
        check_duration("The outcome cannot have delay_ms", disposition.delay_ms)
    if found.kept:
        return Decision(reply=len(tags))
    assert found.lease is not None
    if not command.discard:
        rejected = (
            those for disposition, those in groups if disposition.outcome is Outcome.REJECTED
        )
        check_dead_letterable(
            state, found.session, found.lease, BitMap64.union(BitMap64(), *rejected)
        )
    outcomes = tuple(TagOutcome.of(*group, discard=command.discard) for group in groups)
    _check_room(found.session, found.lease, outcomes)
    record = records.OutcomesStaged(found.session.name, command.stage_id, command.label, outcomes)
    return Decision((record,), len(tags))


def apply_staged(state: State, _sequence: int, record: records.OutcomesStaged) -> None:
    """Keeps a stage of outcomes until its commit."""
    session = state.sessions[record.session]
    lease = session.accepted_last if record.kept else session.lease
    assert lease is not None
    tags = sum(len(entry.tags) for entry in record.outcomes)
    lease.stages[record.stage_id] = OutcomeStage(record.label, tags, record.outcomes)
    state.outcome_stages[record.stage_id] = record.session


def commit(state: State, command: commands.CommitOutcomes, _now_us: int) -> Decision:
    """S6: commits all stages of a settle call; a repeated commit is a success."""
    total = sum(tags for _, tags in command.stages)
    try:
        found = readers.find(state, command.owner)
    except SessionNotFoundError:
        if command.stages or command.owner.session:
            raise
        return Decision(reply=CommittedOutcomes(0, False))
    session, lease = found.session, found.lease
    if found.kept or _done(session.accepted_last, command):
        return Decision(reply=CommittedOutcomes(total, True))
    new = _named_stages(session, lease, command)
    outcomes = lease.outcomes if lease is not None else None
    # A call without rows also counts, if there are older outcomes to replace. It names no tags,
    # so a caller that is no query, and not known to read the lease, cannot mean it.
    nothing = not command.stages and outcomes is not None and outcomes.epoch < session.epoch
    if not new and not (nothing and (found.known or command.owner.query_id)):
        return Decision(reply=CommittedOutcomes(total, False))
    record = records.OutcomesCommitted(session.name, new, found.batch_id)
    return Decision((record,), CommittedOutcomes(total, False))


def apply_committed(state: State, _sequence: int, record: records.OutcomesCommitted) -> None:
    """Adds stages to the outcomes of this epoch; outcomes of an older epoch are replaced.

    Folded when applied, as the record names stages only: replay has to fold them as well, and their
    tags are in the journal once.
    """
    session = state.sessions[record.session]
    lease = session.lease
    assert lease is not None
    outcomes = lease.outcomes
    if outcomes is None or outcomes.epoch < session.epoch:
        outcomes = Outcomes(session.epoch, record.batch_id)
    outcomes.batch_id = record.batch_id
    came = [((entry.disposition, entry.discard), entry.tags) for entry in outcomes.negative]
    for stage_id in record.stage_ids:
        staged = lease.stages.pop(stage_id)
        del state.outcome_stages[stage_id]
        outcomes.stages[stage_id] = staged.tags
        came += [((entry.disposition, entry.discard), entry.tags) for entry in staged.outcomes]
    outcomes.negative = tuple(
        TagOutcome.of(disposition, tags, discard=discard)
        for (disposition, discard), tags in bitmaps.last_wins(came).items()
        if disposition.outcome is not Outcome.ACCEPTED
    )
    lease.outcomes = outcomes


def abort(state: State, command: commands.AbortOutcomes, _now_us: int) -> Decision:
    """S6: drops stages that no commit will name; what was committed stays."""
    named = tuple(i for i in dict.fromkeys(command.stage_ids) if i in state.outcome_stages)
    return Decision((records.OutcomesDropped(named),) if named else (), len(named))


def apply_dropped(state: State, _sequence: int, record: records.OutcomesDropped) -> None:
    """Drops uncommitted stages of outcomes."""
    for stage_id in record.stage_ids:
        session = state.sessions[state.outcome_stages.pop(stage_id)]
        (lease,) = (lease for lease in session.leases() if stage_id in lease.stages)
        del lease.stages[stage_id]


def check_dead_letterable(state: State, session: Session, lease: Lease, rejected: BitMap64) -> None:
    """S6, S8: refuses rejections without a dead-letter queue: PreconditionFailedError."""
    for segment in lease.segments:
        queue = state.queues.get(segment.queue_id)
        if queue is None or dead_letter_queue(state, queue):
            continue
        doomed = segment.at(rejected - lease.holes)
        if doomed:
            raise PreconditionFailedError(
                f"{plural(len(doomed), 'message')} of queue '{queue.name}' would be lost: the "
                "queue has no dead-letter queue. Declare it with one, release instead of reject, "
                "or reject with discard, which drops messages.",
                session=session.name,
                queue=queue.name,
            )


def outside(session: Session, tag: int, lease: Lease | None) -> UnknownDeliveryTagError:
    """The error for a tag outside of the lease."""
    end = lease.segments[-1].last_tag if lease is not None else session.end
    has = f"are ({lease.floor}, {end}]" if lease is not None else f"end at {end}, all accepted"
    return UnknownDeliveryTagError(
        f"The tag {tag} is not in the lease of session '{session.name}', whose tags {has}: its "
        "batch was accepted before, or it is of another session. Settle rows in the batch that "
        "brought them.",
        session=session.name,
        delivery_tag=tag,
        end_tag=end,
    )


def _staged(state: State, found: OwnedLease, stage_id: bytes) -> int | None:
    """Number of tags of a stage that was staged before; None for a new stage."""
    name = state.outcome_stages.get(stage_id)
    if name is not None and name != found.session.name:
        raise InvalidArgumentError(
            f"The stage {stage_id.hex()} is in use by another session; take a new random id for "
            "every task's attempt.",
            stage=stage_id.hex(),
        )
    for lease in found.session.leases():
        if stage_id in lease.stages:
            return lease.stages[stage_id].tags
        if lease.outcomes is not None and stage_id in lease.outcomes.stages:
            return lease.outcomes.stages[stage_id]
    return None


def _of_kept(found: OwnedLease, tags: BitMap64) -> bool:
    """K2: whether an owner without a noted fetch settles tags of the lease accepted last.

    Such an owner names the session alone, as on Spark Connect. Only a holder that attached after
    the accept can run the batch again; from any other, such tags are as unknown as older ones.
    """
    session, kept = found.session, found.session.accepted_last
    return (
        not found.known
        and kept is not None
        and session.holder.since_us > kept.accepted_us
        and bool(tags)
        and kept.floor < tags.min()
        and tags.max() <= kept.segments[-1].last_tag
    )


def _stage_kept(session: Session, command: commands.StageOutcomes, tags: BitMap64) -> Decision:
    """K2: keeps a stage for the lease accepted last, without effect: its commit finds it."""
    kept = session.accepted_last
    assert kept is not None
    outcomes = (TagOutcome.of(ACCEPT, tags),)
    _check_room(session, kept, outcomes)
    record = records.OutcomesStaged(
        session.name, command.stage_id, command.label, outcomes, kept=True
    )
    return Decision((record,), len(tags))


def _check_inside(found: OwnedLease, tags: BitMap64) -> None:
    """S6: refuses a tag outside of the lease; a hole is inside."""
    session, lease = found.session, found.lease
    floor, end = (lease.floor, lease.segments[-1].last_tag) if lease is not None else (0, 0)
    if tags and tags.min() <= floor:
        raise outside(session, tags.min(), lease)
    if lease is None or (tags and tags.max() > end):
        raise outside(session, bitmaps.lowest_from(tags, end + 1) or 0, lease)


def _check_room(session: Session, lease: Lease, outcomes: tuple[TagOutcome, ...]) -> None:
    """I6: refuses more stages or different outcomes than a lease may have: LimitError."""
    said = lease.outcomes
    stages = len(lease.stages) + (len(said.stages) if said is not None else 0)
    held = sum(len(staged.outcomes) for staged in lease.stages.values())
    held += len(said.negative) if said is not None else 0
    for what, count, most in (
        ("stages", stages + 1, MAX_STAGES),
        ("different outcomes, reasons and delays", held + len(outcomes), MAX_TAG_OUTCOMES),
    ):
        if count > most:
            raise LimitError(
                f"The lease of session '{session.name}' has reached the limit of {most} {what}. "
                "Settle with fewer different reasons, or in fewer tasks. maxMessagesPerTrigger"
                " bounds only leases that are not made yet.",
                session=session.name,
                limit=most,
            )


def _done(kept: Lease | None, command: commands.CommitOutcomes) -> bool:
    """Whether a commit repeats one that took effect with the accept, or replays its batch."""
    if kept is None or not command.stages:
        return False
    had = {stage_id: staged.tags for stage_id, staged in kept.stages.items()}
    had |= kept.outcomes.stages if kept.outcomes is not None else {}
    return all(had.get(stage_id) == tags for stage_id, tags in command.stages)


def _named_stages(
    session: Session, lease: Lease | None, command: commands.CommitOutcomes
) -> tuple[bytes, ...]:
    """Uncommitted stages that a commit names; each must exist with the tags its task counted."""
    new: dict[bytes, None] = {}
    for stage_id, tags in command.stages:
        staged = lease.stages.get(stage_id) if lease is not None else None
        said = lease.outcomes if lease is not None else None
        before = said.stages.get(stage_id) if said is not None else None
        have = staged.tags if staged is not None else before
        if have is None:
            why = "does not exist"
        elif have != tags:
            why = f"has {plural(have, 'tag')}, not {tags}"
        elif stage_id in new:
            why = "is named twice"
        else:
            if staged is not None:
                new[stage_id] = None
            continue
        raise StageMismatchError(
            f"The outcomes for session '{session.name}' were not committed, and none of them "
            f"takes effect: the stage {stage_id.hex()} {why}. Run the batch again.",
            session=session.name,
            stage=stage_id.hex(),
        )
    return tuple(new)
