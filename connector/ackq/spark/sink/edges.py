"""A write to several brokers, its edges: which row goes where, and one commit for all (K14).

All edges are asked for what they know of the batch (*look*). The others keep their stages
(*prepare*), one edge, the *home*, records the commit with the stages of all (*commit*), and the
others make theirs visible (*finish*). Invariant: a batch becomes visible at an edge only with the
stages that its home has recorded, so a batch that was run again with other rows changes nothing
after that record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ackq import client
from ackq.errors import BatchChangedError, BatchOrderError, InvalidArgumentError
from ackq.wire.answers import copied

if TYPE_CHECKING:
    from ackq.client import Stage
    from ackq.spark.sink.rows import RoutedBatch
    from ackq.v1.publishing_pb2 import CommitBatchResponse, PrepareBatchResponse

    # Calls one edge, by endpoint and stages, for the batch or that of the field `batch_id`.
    Prepare = Callable[..., PrepareBatchResponse]
    Commit = Callable[..., CommitBatchResponse]

T = TypeVar("T")


def split(
    endpoints: Sequence[str], shard_by: str, label: str, parts: Iterable[RoutedBatch]
) -> Iterator[tuple[str, RoutedBatch]]:
    """Each part of a task's rows with its edge.

    Args:
        endpoints: The edges.
        shard_by: The column whose value decides on a row's edge, and keeps its order there; "": the
            routing key. Parts without this column go to the edges in turn.
        label: Partition and attempt, so that the tasks of small batches do not begin at one edge.
        parts: The rows.
    """
    turn = zlib.crc32(label.encode())
    for part in parts:
        name = shard_by or "routing_key"
        if len(endpoints) == 1:
            yield endpoints[0], part
        elif name not in part.batch.schema.names:
            yield endpoints[turn % len(endpoints)], part
            turn += 1
        else:
            owners = _owners(part.batch.column(name), len(endpoints))
            for owner in np.unique(owners):
                rows = part.batch.filter(pa.array(owners == owner))
                yield endpoints[owner], part._replace(batch=rows)


def _owners(column: pa.Array, edges: int) -> npt.NDArray[np.int64]:
    """The index of each row's edge, the same for equal values in every task."""
    encoded = column.cast(pa.binary()).fill_null(b"").dictionary_encode()
    owners = [zlib.crc32(value.as_py()) % edges for value in encoded.dictionary]
    return np.array(owners, np.int64)[np.asarray(encoded.indices, np.int64)]


def commit(
    writer: str, stages: Mapping[str, Sequence[Stage]], prepare: Prepare, commit_at: Commit
) -> CommitBatchResponse:
    """Makes a batch visible at all edges, once, whatever ended an earlier attempt.

    Args:
        writer: The writer, which decides on the home.
        stages: The stages at each edge, none where no row goes.
        prepare: Calls `prepare_batch` at an endpoint for this batch.
        commit_at: Calls `commit_batch`.

    Returns:
        The answer of the home, also where the batch was committed for other edges before.

    Raises:
        BatchChangedError: The batch was prepared for other edges and not finished, or was committed
            as another one (K3).
        AckqError: As `ackq.client.commit_batch`; committing again is safe.
    """
    for _ in stages:  # an earlier batch may be prepared at each of them
        try:
            return _commit(writer, stages, prepare, commit_at)
        except BatchChangedError as error:
            if "unfinished" not in error.fields:
                raise
            earlier = int(error.fields["unfinished"])
            edges = _edges_of(earlier, stages, prepare)
            if not edges:
                raise
            _finish_earlier(writer, earlier, edges, commit_at)
    return _commit(writer, stages, prepare, commit_at)


def _commit(
    writer: str, stages: Mapping[str, Sequence[Stage]], prepare: Prepare, commit_at: Commit
) -> CommitBatchResponse:
    """As `commit`, for a batch without an earlier one that is prepared at its edges."""
    edges = ",".join(sorted(stages)) if len(stages) > 1 else ""
    home = home_of(writer, ",".join(stages))
    others = {name: named for name, named in stages.items() if name != home}
    if others:
        names = list(stages)
        looks = _each(names, lambda name: prepare(name, (), ""))
        _check_distinct(names, looks)
        for name, known in zip(names, looks, strict=True):
            if known.edges != edges and (known.committed or known.edges):
                # Without edges it was committed at one broker, before there were several.
                older_home = home_of(writer, known.edges) if known.edges else name
                return _finish_older(older_home, known.edges, stages, prepare, commit_at)
        _each(others, lambda name: prepare(name, others[name], edges))
    answer = commit_at(home, stages[home], edges=edges, others=others)
    if answer.edges not in ("", edges):
        older_home = home_of(writer, answer.edges)
        return _finish_older(older_home, answer.edges, stages, prepare, commit_at)
    _finish(answer, commit_at)
    return answer


def home_of(writer: str, edges: str) -> str:
    """The edge that records a writer's commits, the same for the same edges in any order."""
    return max(sorted(edges.split(",")), key=lambda name: zlib.crc32(f"{writer}@{name}".encode()))


def _check_distinct(names: Sequence[str], looks: Sequence[PrepareBatchResponse]) -> None:
    """Refuses two names of one broker, whose commit would drop what it has prepared itself."""
    by_broker: dict[bytes, str] = {}
    for name, answer in zip(names, looks, strict=True):
        other = by_broker.setdefault(answer.broker, name)
        if other != name:
            raise InvalidArgumentError(
                f"The endpoints {other} and {name} are one broker, and nothing was committed. Name"
                " it once.",
                endpoint=name,
            )


def _finish_older(
    home: str,
    edges: str,
    stages: Mapping[str, Sequence[Stage]],
    prepare: Prepare,
    commit_at: Commit,
) -> CommitBatchResponse:
    """Finishes a batch that was prepared or committed for other edges, if their home has it."""
    if not prepare(home, (), "").committed:
        raise BatchChangedError(
            f"The batch was prepared for the edges {edges}, and not committed for the edges that"
            " the option 'endpoint' names now. Run it with the previous edges:"
            f" .option('endpoint', '{edges}'). The next batch may have others.",
            edges=edges,
        )
    # The home compares the rows of all edges with those that it has recorded (K3).
    staged = [stage for named in stages.values() for stage in named]
    known = commit_at(home, staged, edges=edges)
    _finish(known, commit_at)
    return known


def _edges_of(batch_id: int, names: Iterable[str], prepare: Prepare) -> str:
    """The edges for which a batch is prepared at one of those named; "" if at none."""
    for name in names:
        try:
            known = prepare(name, (), "", batch_id=batch_id)
        except (BatchOrderError, BatchChangedError):
            continue  # this edge has a later batch
        if known.edges and not known.committed:
            return known.edges
    return ""


def _finish_earlier(writer: str, batch_id: int, edges: str, commit_at: Commit) -> None:
    """Finishes an earlier batch, whose driver ended, as its home has it.

    A home that has not committed it records it without rows, so that nobody commits it later. What
    an attempt prepared that the home did not commit is dropped.
    """
    home = home_of(writer, edges)
    commit_at = partial(commit_at, batch_id=batch_id)
    others: dict[str, Sequence[Stage]] = {name: () for name in edges.split(",") if name != home}
    try:
        known = commit_at(home, (), edges=edges, others=others, keep_changed=True)
    except BatchOrderError:
        raise BatchChangedError(
            f"Batch {batch_id} was prepared for the edges {edges}, and {home}, which would know"
            " whether it was committed, has a later batch that did not name them all. To go on"
            " without its rows at the edges that have not shown them:"
            f" `ackq batch drop --force '{writer}' {batch_id}` at each.",
            writer=writer,
            batch=batch_id,
            edges=edges,
        ) from None
    recorded = {each.endpoint: each.stages for each in known.others}

    def finish(name: str) -> None:
        named = [copied(client.Stage, stage) for stage in recorded.get(name, ())]
        # One with a later batch has finished this one before, or never prepared it.
        with suppress(BatchOrderError):
            commit_at(name, named, finish=True, edges=known.edges or edges)

    _each(recorded.keys() | others.keys(), finish)


def _finish(known: CommitBatchResponse, commit_at: Commit) -> None:
    """Makes the stages visible that the home has recorded for the other edges."""
    stages = {
        each.endpoint: [copied(client.Stage, stage) for stage in each.stages]
        for each in known.others
    }
    _each(stages, lambda name: commit_at(name, stages[name], finish=True, edges=known.edges))


def _each(names: Iterable[str], call: Callable[[str], T]) -> list[T]:
    """The answers of several edges, called at once."""
    names = list(names)
    with ThreadPoolExecutor(max(1, len(names)), "ackq-edge") as pool:
        return list(pool.map(partial(call), names))
