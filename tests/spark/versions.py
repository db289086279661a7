"""Differences of a query on Spark 4.0 and 4.1, which do not report its start offset (K13)."""

from __future__ import annotations

import pytest

from ackq.spark.engine import SAYS_START

# The id of the first batch with rows: since 4.2 the opening batch comes before it.
FIRST = 1 if SAYS_START else 0

needs_start = pytest.mark.skipif(
    not SAYS_START,
    reason="K13: Spark before 4.2 does not say where a query stands; see test_older.py",
)
needs_no_start = pytest.mark.skipif(
    SAYS_START, reason="K13: Spark before 4.2 alone does not say where a query stands"
)


def batches(*bodies: list[bytes]) -> list[tuple[int, list[bytes]]]:
    """The batches of a query by their ids, with the opening batch where there is one."""
    return list(enumerate([[]] * FIRST + [*bodies]))


def since_start(**options: object) -> dict[str, object]:
    """Options that the trigger once ignores, but not before 4.2."""
    return options if SAYS_START else {}
