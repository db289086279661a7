"""Paged columns against plain dicts: steps, counts, the requeue log, deadlines, holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.deadlines import Deadlines, rounded
from ackq_broker.core.columns.position_counts import Counts
from ackq_broker.core.columns.requeued import Requeued
from ackq_broker.core.columns.step_function import PAGE_ROWS, Steps
from ackq_broker.core.state.channel import ChannelTags

VALUE = np.dtype([("a", "<i8"), ("b", "<i4")])
positions = st.sets(st.integers(1, 200), min_size=1)


@settings(max_examples=60, deadline=None)
@given(
    stretches=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), max_size=200),
    data=st.data(),
)
def test_steps_find_what_a_dict_finds(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """C16: whatever was removed and packed, and in bytes that do not tell."""
    steps, expected, key = Steps(VALUE), {}, 5
    together = data.draw(st.integers(1, 40))
    for begin in range(0, len(stretches), together):
        rows = []
        for count, value in stretches[begin : begin + together]:
            if rows and rows[-1][2] == (value, -value):
                continue
            rows.append((key, count, (value, -value)))
            expected |= {key + i: (value, -value) for i in range(count)}
            key += count + value
        if len(rows) == 1:
            steps.append(*rows[0])
        else:
            keys, counts, values = zip(*rows, strict=True)
            steps.extend(np.array(keys), np.array(counts), np.array(list(values), VALUE))
    for _ in range(3):
        keys = sorted(expected)
        gone = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
        expected = {key: value for key, value in expected.items() if key not in gone}
        present = BitMap64(expected)
        steps.remove(BitMap64(gone), present)
        values = steps.at(bitmaps.array(present))
        assert [value.item() for value in values] == [expected[key] for key in sorted(expected)]
        again = Steps.load(VALUE, steps.dump(present), present)
        assert again.dump(present) == steps.dump(present)
        for first, last in zip(sorted(expected), sorted(expected)[4:], strict=False):
            constant = steps.constant(first, last)
            assert constant in (None, expected[first])
            assert constant is None or expected[last] == constant
        if data.draw(st.booleans()):
            steps = again


def test_a_million_keys_in_one_stretch_are_one_row() -> None:
    """C16: however they came."""
    steps = Steps(VALUE)
    for first in range(0, 1_000_000, 10_000):
        steps.append(first, 10_000, (7, 7))
    assert len(steps.dump(BitMap64(range(1_000_000))).keys) == 8


def test_steps_of_many_pages() -> None:
    """C16: pages are filled, packed and dropped one by one."""
    steps, count = Steps(VALUE), 5 * PAGE_ROWS
    values = np.zeros(count, VALUE)
    values["a"] = np.arange(count)
    for key in range(700):
        steps.append(key, 1, (key, 0))
    for begin, end in ((699, 900), (900, 901), (901, 4 * PAGE_ROWS), (4 * PAGE_ROWS, count)):
        ones = np.ones(end - begin, np.int64)
        ones[0] = begin > 699
        steps.extend(np.arange(begin, end), ones, values[begin:end])
    survivors = BitMap64(range(3, count - 2 * PAGE_ROWS, 50))
    gone = BitMap64(range(count)) - survivors
    steps.remove(gone, survivors)
    assert steps.at(bitmaps.array(survivors))["a"].tolist() == list(survivors)
    assert steps.constant(3, 53) is None
    steps.append(count, 2, (1, 1))
    assert steps.at(np.array([3, count + 1]))["a"].tolist() == [3, 1]
    steps.remove(survivors, BitMap64((count, count + 1)))
    assert steps.at(np.array([count]))["a"].tolist() == [1]
    assert len(steps.at(np.empty(0, np.int64))) == 0


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(st.tuples(st.sampled_from(["add", "forget", "reload"]), positions)))
def test_counts_are_those_of_a_dict(actions: list[tuple[str, set[int]]]) -> None:
    """C7, C13: counted, forgotten and looked up together."""
    counts, expected = Counts(), dict.fromkeys(range(1, 201), 0)
    every = BitMap64(expected)
    for action, chosen in actions:
        if action == "add":
            counts.add(BitMap64(chosen))
            expected |= {position: expected[position] + 1 for position in chosen}
        elif action == "forget":
            counts.forget(BitMap64(chosen))
            expected |= dict.fromkeys(chosen, 0)
        else:
            counts = Counts.load(counts.dump())
        assert counts.at(every).tolist() == list(expected.values())
        assert set(counts.some(BitMap64(chosen))) == {p for p in chosen if expected[p]}
        whole = {n: BitMap64(p for p in every if expected[p] == n) for n in expected.values() if n}
        assert Counts.load(tuple(whole.items())).dump() == counts.dump()


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(positions, st.booleans(), st.booleans()), min_size=1, max_size=30),
    sweep=st.sampled_from([1, 5, 1024]),
)
def test_the_requeue_log_is_a_dict_of_sequences(
    steps: list[tuple[set[int], bool, bool]], sweep: int
) -> None:
    """K5: the latest sequence of each ready position counts, swept or not."""
    from unittest import mock

    log, expected, ready = Requeued(), {}, BitMap64(range(1, 201))
    with (
        mock.patch("ackq_broker.core.columns.requeued._SWEEP_ROWS", sweep),
        mock.patch("ackq_broker.core.columns.requeued._POSITIONS_PER_ROW", 10_000),
    ):
        for sequence, (chosen, reload, take) in enumerate(steps, 1):
            part = BitMap64(chosen)
            ready |= part
            log.add(sequence, part, ready)
            expected |= dict.fromkeys(chosen, sequence)
            if take:
                ready -= part
            if reload:
                log = Requeued.load(log.dump())
            for horizon in range(sequence + 1):
                later = {p for p in ready if expected.get(p, 0) > horizon}
                assert set(log.after(horizon) & ready) == later
    assert len(log.after(len(steps))) == 0


def test_a_requeue_storm_leaves_a_bounded_log() -> None:
    """C16, K5: one message put back again and again does not pile up rows."""
    log, ready = Requeued(), BitMap64((5,))
    for sequence in range(1, 10_000):
        log.add(sequence, ready, ready)
    assert len(log.dump()) < 1100 * 24
    assert list(log.after(9_998)) == [5]
    assert Requeued.load(b"").after(0) == BitMap64()


@settings(max_examples=100, deadline=None)
@given(
    waits=st.lists(st.integers(-(10**6), 10**15), min_size=1, max_size=20),
    now=st.integers(10**15, 2 * 10**15),
)
def test_instants_are_rounded_up(waits: list[int], now: int) -> None:
    """Q3, C14: never early, at most 1/512 of the wait or 16.4 ms late, and twice is as once."""
    instants = np.array(waits) + now
    late = rounded(instants, now) - instants
    assert (late >= 0).all()
    assert (late <= np.maximum(np.array(waits) / 512, 16_384)).all()


def test_buckets_of_a_steady_stream_are_bounded() -> None:
    """I6: a week's TTL on messages of every second needs some thousand buckets."""
    week_us, now = 7 * 24 * 3600 * 10**6, 10**15
    publishes = now + np.arange(0, week_us, 10**6)
    ends = [int(rounded(np.array([at + week_us]), int(at))[0]) for at in publishes[::60]]
    assert len(set(ends)) < 2_000


@settings(max_examples=60, deadline=None)
@given(
    buckets=st.lists(st.tuples(st.integers(1, 20), positions), max_size=10),
    present=positions,
    now=st.integers(0, 21),
)
def test_deadlines_are_those_of_a_dict(
    buckets: list[tuple[int, set[int]]], present: set[int], now: int
) -> None:
    """Q3: with what is gone left out wherever it shows."""
    deadlines, there = Deadlines(), BitMap64(present)
    for instant, chosen in buckets:
        deadlines.add(instant, BitMap64(chosen))
    held = [(instant, chosen & present) for instant, chosen in buckets if chosen & present]
    expected = min((instant for instant, _ in held), default=0)
    assert deadlines.first(BitMap64(), there) == expected
    due = set().union(*(chosen for instant, chosen in held if instant <= now))
    assert set(deadlines.due(now) & there) == due
    again = Deadlines.load(deadlines.dump(there))
    assert again.dump(there) == deadlines.dump(there)
    assert set(deadlines.pop(now) & there) == due
    assert set(deadlines.due(now)) == set()
    later = [instant for instant, _ in held if instant > now]
    assert deadlines.first(there) == min(later, default=0)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_channel_is_a_dict_of_tags(data: st.DataObject) -> None:
    """C1, C16: tags of several queues, positions in any order, settled in any."""
    channel, expected, free = ChannelTags(), {}, {1: set(range(1, 60)), 2: set(range(1, 60))}
    for _ in range(data.draw(st.integers(1, 25))):
        queue_id = data.draw(st.sampled_from((1, 2)))
        if free[queue_id]:
            given_now = data.draw(st.sets(st.sampled_from(sorted(free[queue_id])), min_size=1))
            free[queue_id] -= given_now
            for tag, position in enumerate(sorted(given_now), channel.next_tag):
                expected[tag] = (queue_id, position)
            channel.assign_tags(queue_id, BitMap64(given_now))
        if expected and data.draw(st.booleans()):
            tags = data.draw(st.sets(st.sampled_from(sorted(expected)), min_size=1))
            taken = channel.take(BitMap64(tags))
            found = {(q, p) for q, ps in taken.items() for p in ps}
            assert found == {expected.pop(tag) for tag in tags}
            for queue_id, position in found:
                free[queue_id].add(position)
        assert set(channel.outstanding()) == set(expected)
        some = data.draw(st.sets(st.integers(1, channel.next_tag)))
        assert set(channel.unknown(BitMap64(some))) == some - set(expected)
        tag = data.draw(st.integers(1, channel.next_tag))
        assert set(channel.up_to(tag)) == {t for t in expected if t <= tag}


@settings(max_examples=100, deadline=None)
@given(chosen=positions)
def test_runs_of_a_bitmap(chosen: set[int]) -> None:
    """I5: and back again."""
    firsts, counts = bitmaps.runs(BitMap64(chosen))
    assert bitmaps.expanded(firsts, counts).tolist() == sorted(chosen)
    assert set(bitmaps.of_runs(firsts, counts)) == chosen
    long = bitmaps.of_runs(firsts * 100, counts * 100)
    assert len(long) >= 100 * len(firsts)


def test_counts_go_down_as_they_went_up() -> None:
    """I3: a position is forgotten with its last count; one that has none cannot lose it."""
    counts, every = Counts(), BitMap64(range(1, 200))
    times = {position: position % 7 for position in every}
    for most in range(7):
        counts.add(BitMap64(p for p, n in times.items() if n > most))
    for _ in range(3):
        some = counts.some(every)
        assert list(some) == [p for p, n in times.items() if n]
        counts.subtract(some)
        times = {p: max(n - 1, 0) for p, n in times.items()}
        assert counts.at(every).tolist() == list(times.values())
    for _ in range(3):
        counts.subtract(counts.positions())
    assert counts.dump() == ()
    with pytest.raises(AssertionError):
        counts.subtract(BitMap64((1,)))
