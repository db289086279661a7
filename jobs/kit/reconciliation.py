"""The last line of a job: counts taken at several places, and the verdict whether they agree."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kit import say


def reconcile(equal: Mapping[str, int], zero: Mapping[str, int]) -> tuple[str, bool]:
    """The verdict on counts that must agree.

    Args:
        equal: Counts that must be one number, and not 0: moving nothing proves nothing.
        zero: Counts that must be 0.

    Returns:
        As `verdict`.
    """
    agree = len(set(equal.values())) == 1 and 0 not in equal.values() and not any(zero.values())
    return verdict({**equal, **zero}, agree=agree)


def verdict(counts: Mapping[str, int], *, agree: bool) -> tuple[str, bool]:
    """The last line of a job, ending in OK or MISMATCH, and whether it is OK."""
    shown = " ".join(f"{name}={count}" for name, count in counts.items())
    return f"{shown} {'OK' if agree else 'MISMATCH'}", agree


def conclude(found: tuple[str, bool]) -> int:
    """Prints the line of a verdict; returns the exit status."""
    line, agree = found
    say(line)
    return 0 if agree else 1


def count_rows(table: DataFrame, name: str = "message_id") -> tuple[int, int]:
    """Number of rows of a table, and of rows that repeat the message id of another row.

    `name` is the column of the ids.
    """
    found = table.agg(F.count("*"), F.count(name), F.count_distinct(name)).first()
    assert found is not None
    rows, named, distinct = found
    return rows, named - distinct
