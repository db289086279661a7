"""Deliveries are stored once, in one record (L5, L9, L11)."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ackq import limits
from ackq.errors import InvalidArgumentError, LimitError, QueueFullError
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.core.columns.bitmaps import Int64s
from tests.unit.core.harness import Harness
from tests.unit.core.link_process import LinkProcess, accept


def test_numbers_that_were_answered_are_forgotten(process: LinkProcess) -> None:
    """L5: a frame names the lowest unanswered number; a number below it is refused."""
    frame = process.command(["a", "b"])
    process.harness.do(frame)
    process.number = 3
    process.store(["c"], lowest_unanswered=3)
    with pytest.raises(InvalidArgumentError, match="the deliveries below 3 were answered"):
        process.harness.do(frame)
    with pytest.raises(InvalidArgumentError, match="the deliveries below 4 were answered"):
        process.harness.do(replace(frame, first_number=3, lowest_unanswered=4))


def test_a_gap_is_refused(process: LinkProcess) -> None:
    """L5: a frame after a gap is not taken before the missing frame."""
    with pytest.raises(InvalidArgumentError, match="the next number is 1") as caught:
        process.store(["b"], first=2)
    assert caught.value.fields["next_number"] == "1"


def test_another_subscription_is_refused(process: LinkProcess) -> None:
    """L17: a delivery belongs to its subscription."""
    late = process.command(["a"])
    process.subscribe()
    with pytest.raises(InvalidArgumentError, match="subscription 1, but 2 is the current one"):
        process.harness.do(late)


def test_a_full_queue_keeps_nothing_of_a_frame(harness: Harness) -> None:
    """L5, P8: no row of a refused frame is kept; the frame comes again under its numbers."""
    harness.declare("q", max_length=3)
    process = LinkProcess(harness)
    process.subscribe()
    process.store(["a", "b"])
    process.subscribe()
    before = harness.core.snapshot()
    with pytest.raises(QueueFullError, match="has room for 1 only") as refusal:
        process.store(["a", "x", "y"])
    assert refusal.value.fields["fitting"] == "2"
    process.store(["z"])
    process.subscribe()
    before = harness.core.snapshot()
    with pytest.raises(QueueFullError, match="is full") as refusal:
        process.store(["a", "b", "x", "z"])
    assert refusal.value.fields["fitting"] == "2"
    assert harness.core.snapshot() == before
    assert process.matched(["a", "b"]) == [True, True]
    accept(harness, 1)
    assert process.positions(["x"]) == [4]


def test_entries_have_a_bound(process: LinkProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: over the bound a frame is refused, with the remedy; matched rows need no room."""
    monkeypatch.setattr(limits, "MAX_LINK_ENTRIES", 3)
    process.store(["a", "b"])
    with pytest.raises(LimitError, match="ackq link remove l --forget"):
        process.store(["c", "d"])
    process.subscribe()
    assert process.matched(["b", "a", "c"]) == [True, True, False]


def test_deliveries_that_need_nothing_more_are_forgotten(process: LinkProcess) -> None:
    """I6, L5: answered, acknowledged and proven deliveries are forgotten; others still reported."""
    for begin in range(0, 20_000, 1_000):
        names = [f"{number}" for number in range(begin, begin + 1_000)]
        process.store(names, lowest_unanswered=process.number)
        accept(process.harness, *range(begin + 2, begin + 1_001))
        process.permit()
        process.proven += 999
    state = process.state()
    assert state.deliveries[1].sum() < 8_000
    runs = process.open().runs
    assert [run.first_position for run in runs][:3] == [1, 1001, 2001]


def test_the_cost_is_by_the_block(process: LinkProcess) -> None:
    """I5: ten times the rows take no more function calls; an answer has one object per run."""
    counts = [calls(process, rows) for rows in (1_000, 10_000)]
    assert counts[1] <= counts[0] * 1.2


def calls(process: LinkProcess, rows: int) -> int:
    """Counts the function calls for a frame of `rows` rows, half of them matched, in order."""
    core = process.harness.core
    generator = np.random.default_rng(rows)
    keys = generator.integers(1, 1 << 62, (rows, 2), dtype=np.uint64)

    def decide(command: c.Command) -> Any:
        decision = core.decide(command, process.harness.now_us)
        for record in decision.records:
            core.apply(core.sequence + 1, record)
        return decision.reply

    def frame(some: Int64s) -> c.StoreLinked:
        process.subscription = decide(c.SubscribeLink("l", 1))
        columns = {"keys": keys[some], "checks": keys[some, 0]}
        return replace(process.command(["a"]), rows=len(some), payload_bytes=len(some), **columns)

    decide(frame(np.arange(rows // 2)))
    mixed = frame(np.arange(rows))
    found = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        decide(mixed)
    finally:
        sys.setprofile(None)
    assert views.link_info(core.state, "l").matched_held >= rows // 2
    return found
