"""Staged batches and writers as operators see them (K3)."""

import pytest

from ackq.errors import WriterNotFoundError
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US


def test_writers_come_in_pages(harness):
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
