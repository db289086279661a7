"""Batches for several edges (K14): stages that wait for the commit at another broker, the home.

Invariants: what is prepared stays until its batch is committed here, or an operator forces its
drop; of each writer the stages of one batch are prepared at a time.
"""

from __future__ import annotations

from typing import Final

from ackq.errors import BatchChangedError, BatchOrderError
from ackq_broker.core import commands, records
from ackq_broker.core.commands import BatchKey, CommittedBatch, Decision
from ackq_broker.core.publishing import repetition, writers
from ackq_broker.core.queues.bounds import NO_ROOM, Room
from ackq_broker.core.state.state import Stage, State, Writer

# Batch and edges of a writer that has prepared nothing.
NOTHING: Final = (-1, "")


def edges_of(state: State, batch: BatchKey) -> str:
    """The edges for which a batch is prepared; empty: it is not."""
    writer = state.writers.get(batch.writer)
    return _edges(writer, batch.batch_id)


def _edges(writer: Writer | None, batch_id: int) -> str:
    if writer is None or writer.batch_id >= batch_id:
        return ""
    known, edges = writer.preparing
    return edges if known == batch_id else ""


def reserved(state: State, batch: BatchKey) -> dict[int, Room]:
    """The room that the prepared stages of a batch hold, by queue id.

    Of a batch that is written again, its prepared rows or the new ones become visible, never both.
    """
    found: dict[int, Room] = {}
    if not edges_of(state, batch):
        return found
    stages = (state.stages[stage_id] for stage_id in state.stages_of.get(batch.writer, ()))
    blocks = (
        block for each in stages if each.prepared and each.batch == batch for block in each.blocks
    )
    for part in (part for block in blocks for part in block.parts):
        messages, payload_bytes = found.get(part.queue_id, NO_ROOM)
        found[part.queue_id] = Room(messages + part.count, payload_bytes + part.payload_bytes)
    return found


def check_edges(writer: Writer | None, command: commands.CommitBatch) -> None:
    """Refuses a batch that another broker may have committed: BatchChangedError."""
    edges = _edges(writer, command.batch_id)
    if not edges or edges == command.edges or (command.prepare and not command.edges):
        return
    raise BatchChangedError(
        f"Batch {command.batch_id} of writer '{command.writer}' was prepared for the edges {edges},"
        f" one of which may have committed it, and was not committed for "
        f"{command.edges or 'one broker'}. Run it with the previous edges: "
        f".option('endpoint', '{edges}'). The next batch may have others. If one of them is lost: "
        f"`ackq batch drop --force '{command.writer}' {command.batch_id}` at each that is left.",
        writer=command.writer,
        batch=command.batch_id,
        edges=edges,
    )


def check_alone(state: State, command: commands.CommitBatch) -> None:
    """Refuses a batch while another one is prepared, whose home may have committed it.

    An earlier one without rows here does not matter; a later one would drop the batch's stages.

    Raises:
        BatchChangedError: An earlier batch, which `unfinished` names, is not finished.
        BatchOrderError: A later batch was prepared.
    """
    kept = (state.stages[each] for each in state.stages_of.get(command.writer, ()))
    others = {each.batch_id for each in kept if each.prepared} - {command.batch_id}
    writer = state.writers.get(command.writer)
    if writer is not None and writer.preparing[0] > max(command.batch_id, writer.batch_id):
        others.add(writer.preparing[0])
    if not others:
        return
    other = min(others)
    edges = edges_of(state, BatchKey(command.writer, other))
    drop = f"`ackq batch drop --force '{command.writer}' {other}` at each edge"
    if other > command.batch_id:
        raise BatchOrderError(
            f"Batch {command.batch_id} of writer '{command.writer}' comes before batch {other},"
            f" which was prepared for the edges {edges} and is not finished. Write batch {other}"
            f" again, or drop it: {drop}.",
            writer=command.writer,
            batch=command.batch_id,
        )
    raise BatchChangedError(
        f"Batch {other} of writer '{command.writer}' was prepared for the edges {edges} and is not"
        f" finished: its home may have committed it. Write it again before batch"
        f" {command.batch_id}. If its home is lost, drop it with its rows: {drop}.",
        writer=command.writer,
        batch=command.batch_id,
        unfinished=other,
    )


def look(writer: Writer | None, command: commands.CommitBatch) -> Decision:
    """Answers the edges for which the batch is prepared, and changes nothing."""
    edges = _edges(writer, command.batch_id)
    return Decision(reply=CommittedBatch(0, False, edges=edges))


def prepare(
    writer: Writer | None, command: commands.CommitBatch, named: list[Stage], now_us: int
) -> Decision:
    """Keeps the named stages, which were checked as for a commit, for the end of their batch."""
    reply = CommittedBatch(0, False, edges=command.edges)
    if _edges(writer, command.batch_id) and all(stage.prepared for stage in named):
        return Decision(reply=reply)
    record = records.BatchPrepared(
        writer=command.writer,
        batch_id=command.batch_id,
        run_id=command.run_id,
        edges=command.edges,
        at_us=now_us,
        stage_ids=tuple(stage.stage_id for stage in named),
        single=command.single,
        user=command.user,
    )
    return Decision((record,), reply)


def apply_prepared(state: State, _sequence: int, record: records.BatchPrepared) -> None:
    """Marks the stages of a prepared batch."""
    writer = repetition.remember_run(state, record.writer, record.run_id)
    writers.claim(writer, record.user)
    writer.touched_us = record.at_us
    writer.preparing = record.batch_id, record.edges
    if writer.batch_id < 0:
        writer.single = record.single
    for stage_id in record.stage_ids:
        state.stages[stage_id].prepared = True
