"""Finds a message in a Delta table by its log and files, without Spark: which version brought it.

Invariant: reads only. What the table has no more (files that were vacuumed, commits that were
cleaned up) is said, and not taken for a message that is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ackq.errors import InvalidArgumentError

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.\d+\.\d+)?\.parquet")


class Version(NamedTuple):
    """A version of the table that brought rows with the id.

    Attributes:
        number: The version; -1: one before the oldest commit that is still there.
        at_us: When it was committed; 0: not known.
        operation: As Delta names it, such as `STREAMING UPDATE`.
        query_id: The streaming query, or the txnAppId; empty: not known.
        batch_id: Its micro-batch, or the txnVersion; -1: not known.
        rows: Rows with the id.
        file: The file that has them.
        removed_in: The version that took that file away again; -1: none did.
    """

    number: int
    at_us: int
    operation: str
    query_id: str
    batch_id: int
    rows: int
    file: str
    removed_in: int


@dataclass(slots=True)
class Finds:
    """What was found, and what could not be looked at.

    Attributes:
        versions: Those that brought rows with the id, ascending.
        looked_at: How many files were read.
        first: The oldest commit that is still there; `last`: the newest.
        last: See `first`.
        gone: Files that are in the log and were deleted since (VACUUM).
    """

    versions: list[Version] = field(default_factory=list)
    looked_at: int = 0
    first: int = -1
    last: int = -1
    gone: int = 0


class _Sought(NamedTuple):
    """An id, and the name in the files of the column that has it."""

    message_id: str
    column: str


class _Commit(NamedTuple):
    number: int
    at_us: int
    operation: str
    query_id: str
    batch_id: int
    adds: list[dict[str, Any]]


def find_in_delta(table: str, message_id: str, column: str) -> Finds:
    """The versions of a Delta table that brought rows with an id.

    Args:
        table: A path, or a URI that Arrow knows.
        message_id: The id.
        column: The column that has it.

    Raises:
        InvalidArgumentError: It is no Delta table, or has no such column.
    """
    system, root = _open(table)
    names = [each.base_name for each in system.get_file_info(fs.FileSelector(f"{root}/_delta_log"))]
    numbers = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
    if not numbers:
        raise InvalidArgumentError(f"'{table}' has no commit in its _delta_log.", table=table)
    finds = Finds(first=numbers[0], last=numbers[-1])
    removed: dict[str, int] = {}
    commits, physical = [], column
    for number in numbers:
        commit, gone, renamed = _read_commit(system, root, number, column)
        commits.append(commit)
        removed.update(dict.fromkeys(gone, number))
        physical = renamed or physical
    if numbers[0]:
        commits.insert(0, _checkpointed(system, root, names, numbers[0]))
    for commit in commits:
        for add in commit.adds:
            path = add["path"]
            try:
                rows = _look(system, root, add, _Sought(message_id, physical))
            except FileNotFoundError:
                finds.gone += 1
                continue
            finds.looked_at += 1
            if rows:
                taken = removed.get(path, -1)
                finds.versions.append(Version(*commit[:5], rows=rows, file=path, removed_in=taken))
    return finds


def _open(table: str) -> tuple[fs.FileSystem, str]:
    uri = table if "://" in table else Path(table).absolute().as_uri()
    try:
        system, root = fs.FileSystem.from_uri(uri)
        there = system.get_file_info(f"{root}/_delta_log").type == fs.FileType.Directory
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidArgumentError(f"'{table}' cannot be read: {error}", table=table) from error
    if not there:
        raise InvalidArgumentError(
            f"'{table}' is no Delta table: it has no folder _delta_log.", table=table
        )
    return system, root


def _read_commit(
    system: fs.FileSystem, root: str, number: int, column: str
) -> tuple[_Commit, list[str], str]:
    """A commit, the files that it removes, and the name of the column in files, where it says."""
    with system.open_input_file(f"{root}/_delta_log/{number:020d}.json") as file:
        lines = file.read().decode().splitlines()
    info: dict[str, Any] = {}
    txn: dict[str, Any] = {}
    adds, removes, physical = [], [], ""
    for action in map(json.loads, filter(None, lines)):
        info = action.get("commitInfo") or info
        txn = action.get("txn") or txn
        if (add := action.get("add")) and add.get("dataChange", True):
            adds.append(add)
        if remove := action.get("remove"):
            removes.append(remove["path"])
        if metadata := action.get("metaData"):
            physical = _physical(json.loads(metadata["schemaString"]), column)
    parameters = info.get("operationParameters", {})
    return (
        _Commit(
            number,
            1000 * int(info.get("timestamp", 0)),
            str(info.get("operation", "")),
            str(parameters.get("queryId") or txn.get("appId", "")),
            int(parameters.get("epochId", txn.get("version", -1))),
            adds,
        ),
        removes,
        physical,
    )


def _physical(schema: dict[str, Any], column: str) -> str:
    """The name of a column in the files, which column mapping makes another one."""
    names = {each["name"]: each.get("metadata", {}) for each in schema["fields"]}
    if column not in names:
        raise InvalidArgumentError(
            f"The table has no column '{column}'; it has {', '.join(names)}. Name the one with the "
            "message id: --id-column NAME",
            column=column,
        )
    return str(names[column].get("delta.columnMapping.physicalName", column))


def _checkpointed(system: fs.FileSystem, root: str, names: list[str], first: int) -> _Commit:
    """The files of the newest checkpoint before the oldest commit that is still there."""
    found = [
        (int(match[1]), name)
        for name in names
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= first
    ]
    newest = max((number for number, _ in found), default=-1)
    adds: list[dict[str, Any]] = []
    for number, name in found:
        if number == newest:
            with system.open_input_file(f"{root}/_delta_log/{name}") as file:
                column = pq.read_table(file, columns=["add"]).column("add")
            adds += [add for add in column.to_pylist() if add and add.get("path")]
    return _Commit(-1, 0, "", "", -1, adds)


def _look(system: fs.FileSystem, root: str, add: dict[str, Any], sought: _Sought) -> int:
    """How many rows of a file have the id; raises FileNotFoundError."""
    if _left_out(add.get("stats"), sought):
        return 0
    where = unquote(add["path"])
    if "://" not in where and not where.startswith("/"):
        where = f"{root}/{where}"
    return sum(_matches(system, where, sought))


def _matches(system: fs.FileSystem, path: str, sought: _Sought) -> Iterator[int]:
    message_id, column = sought
    with system.open_input_file(path) as file, pq.ParquetFile(file) as parquet:
        if column not in parquet.schema_arrow.names:
            return  # written before the table had the column
        for batch in parquet.iter_batches(columns=[column]):
            values = batch.column(0)
            if not pa.types.is_string(values.type):
                values = values.cast(pa.string())
            yield pc.sum(pc.equal(values, message_id)).as_py() or 0


def _left_out(stats: str | None, sought: _Sought) -> bool:
    """Whether the file's statistics say that it does not have the id."""
    found = json.loads(stats) if stats else {}
    low = (found.get("minValues") or {}).get(sought.column)
    high = (found.get("maxValues") or {}).get(sought.column)
    if not (isinstance(low, str) and isinstance(high, str)):
        return False
    return not low <= sought.message_id <= high
