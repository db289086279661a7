"""Staged batches and writers as operators see them (K3)."""

import pytest

from ackq.errors import QueueNotFoundError, WriterNotFoundError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, Harness


def staged(harness: Harness, *asked: object, **options: object) -> list[tuple[str, int]]:
    """The names of staged batches."""
    batches = views.staged_batches(harness.core.state, *asked, **options)
    return [tuple(each.batch) for each in batches]


def test_batches_come_in_pages(harness: Harness) -> None:
    """K3, I6: pages are by writer and batch, each after the last batch of the previous one."""
    harness.declare("q", "other")
    for writer, batch_id, queue in (("b", 2, "q"), ("a", 9, "other"), ("b", 10, "q")):
        harness.stage(writer, batch_id, [queue], name=f"{writer}{batch_id}")
    harness.stage("b", 2, ["q"], name="second")
    assert staged(harness, 2) == [("a", 9), ("b", 2)]
    assert staged(harness, 2, after=c.BatchKey("b", 2)) == [("b", 10)]
    assert staged(harness, 9, "q") == [("b", 2), ("b", 10)]
    assert staged(harness, 9, "other") == [("a", 9)]
    with pytest.raises(QueueNotFoundError):
        views.staged_batches(harness.core.state, 9, "gone")


def test_a_batch_that_is_not_staged_any_more_is_in_no_list(harness: Harness) -> None:
    """K3: after a restart, an abort and a commit a queue lists only batches with stages for it."""
    harness.declare("q")
    stages = [harness.stage("w", batch_id, ["q"] * 2, name=f"s{batch_id}-") for batch_id in (1, 2)]
    harness.restart()
    assert staged(harness, 9, "q") == [("w", 1), ("w", 2)]
    harness.do(c.AbortBatch("w", 1, (stages[0].stage_id,)))
    assert staged(harness, 9, "q") == [("w", 2)]
    harness.commit("w", 2, stages[1])
    assert staged(harness, 9) == staged(harness, 9, "q") == []
    harness.stage("w", 2, ["q"], run_id="next", name="again")
    (replay,) = views.staged_batches(harness.core.state, 9)
    assert (replay.committed, replay.targets) == (True, ())


def test_writers_come_in_pages(harness: Harness) -> None:
    """K3, I6: pages are by name; on request they have only writers that were silent for long."""
    harness.declare("q")
    for name in ("c", "a"):
        harness.commit(name, 4, harness.stage(name, 4, ["q"], name=name))
    long_ago_us = harness.now_us
    harness.now_us += DAY_US
    harness.stage("b", 0, ["q"], name="b")
    assert [each.writer for each in views.list_writers(harness.core.state, 2)] == ["a", "b"]
    assert [each.writer for each in views.list_writers(harness.core.state, 2, "b")] == ["c"]
    silent = views.list_writers(harness.core.state, 9, silent_since_us=long_ago_us)
    assert [each.writer for each in silent] == ["a", "c"]
    assert views.writer_info(harness.core.state, "a")[:3] == ("a", 4, 1)
    info = views.writer_info(harness.core.state, "b")
    assert (info.batch_id, info.stages) == (-1, 1)
    with pytest.raises(WriterNotFoundError):
        views.writer_info(harness.core.state, "d")
