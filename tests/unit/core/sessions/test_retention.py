"""Retention (S13): accepted batches that can be read again."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from ackq.errors import PreconditionFailedError, SessionNotFoundError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.unit.core.harness import DAY_US, Harness, Reader, Unchecked, group
from tests.unit.core.memory import allocated

HOUR_MS = 3_600_000


@pytest.fixture
def reader(harness: Harness) -> Reader:
    """A reader that retains a day of its batches."""
    harness.declare("q", dead_letter_queue="dead")
    harness.declare("dead")
    reader = harness.open("q", session="s", retain_ms=24 * HOUR_MS)
    reader.advance(0)
    return reader


def run_batch(harness: Harness, reader: Reader, batch: int, messages: int = 3) -> list[str]:
    """Publishes, leases and accepts a batch; returns its rows as fetched."""
    harness.publish_to("q", messages)
    floor = reader.reply.end_tag
    end = reader.advance(floor).end_tag
    reader.note(batch_id=batch)
    rows = reader.fetch(floor, end)
    reader.advance(end)
    return rows


def again(harness: Harness, batch: int) -> list[tuple[int, str, int]]:
    """The rows of a retained batch, with tags and delivery counts."""
    state = harness.core.state
    incarnation, leases = views.find_retained(state, "s", batch)
    each = views.retained_batch(state, leases[0])
    return harness.rows(
        views.retained_pieces(state, "s", incarnation, each.after_tag, each.last_tag, 100)
    )


def labels(harness: Harness, batch: int) -> list[str]:
    return [label for _, label, _ in again(harness, batch)]


def retained(harness: Harness) -> list[int]:
    return [lease.batch_id for lease in views.find_retained(harness.core.state, "s")[1]]


def test_retained_batches_are_read_as_they_were(harness: Harness, reader: Reader) -> None:
    """S13: the rows of each batch, after later accepts, a restart and a snapshot."""
    rows = [run_batch(harness, reader, batch) for batch in range(1, 5)]
    assert [labels(harness, batch) for batch in range(1, 5)] == rows
    before = [again(harness, batch) for batch in range(1, 5)]
    harness.restart()
    assert [again(harness, batch) for batch in range(1, 5)] == before
    assert harness.core.drain_dead_blocks() == []
    info = harness.info("q")
    assert (info.ready, info.unacked, info.payload_bytes) == (0, 0, 0)
    (session,) = views.list_sessions(harness.core.state, "s")
    assert (session.retained_batches, session.retained_from_batch) == (4, 1)
    assert session.retained_payload_bytes == 4 * 3 * 10


def test_without_retention_one_batch_stays(harness: Harness) -> None:
    """S13, K2: the lease accepted last is the case of one batch, and its options can change."""
    harness.declare("q")
    reader = harness.open("q", session="s")
    reader.advance(0)
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    assert retained(harness) == [2]
    reader.command = replace(reader.command, retain_ms=HOUR_MS)
    run_batch(harness, reader, 3)
    assert retained(harness) == [2, 3]


def test_rows_with_outcomes_are_read_as_they_were(harness: Harness, reader: Reader) -> None:
    """S13, S6: rejected and failed messages are among the rows, with the counts of then."""
    harness.publish_to("q", 4)
    reader.advance(0)
    reader.note(batch_id=1)
    rows = harness.rows(reader.pieces(0, 4))
    said = group(Outcome.REJECTED, 1), group(Outcome.FAILED, 2, delay_ms=1000)
    reader.say(*said, owner=reader.owner(batch_id=1))
    reader.advance(4)
    harness.wait(2)
    run_batch(harness, reader, 2)
    run_batch(harness, reader, 3)
    assert again(harness, 1) == rows
    assert harness.ready("dead") == 1
    assert again(harness, 2)[0] == (5, rows[1][1], 2)


@pytest.mark.parametrize("bound", ["age", "bytes"])
def test_the_oldest_batches_end_first(harness: Harness, reader: Reader, bound: str) -> None:
    """S13: by age or by bytes; the batch accepted last stays for replays (K2)."""
    if bound == "bytes":
        reader.command = replace(reader.command, retain_ms=0, retain_bytes=70)
    for batch in (1, 2, 3):
        run_batch(harness, reader, batch)
        harness.now_us += 10 * HOUR_MS * 1000
    if bound == "age":
        harness.do(c.Housekeep(frozenset({"s"})))
        assert retained(harness) == [2, 3]
        harness.now_us += 2 * DAY_US
        harness.do(c.Housekeep(frozenset({"s"})))
        assert retained(harness) == [3]
        harness.now_us += 7 * DAY_US
        harness.do(c.Housekeep(frozenset({"s"})))
        assert retained(harness) == []
        run_batch(harness, reader, 4)
    else:
        harness.now_us += 30 * DAY_US
        harness.do(c.Housekeep(frozenset({"s"})))
        assert retained(harness) == [2, 3]
        run_batch(harness, reader, 4, messages=9)
        assert retained(harness) == [4]
    with pytest.raises(PreconditionFailedError, match="from batch"):
        again(harness, 1)


def test_a_purge_ends_retention(harness: Harness, reader: Reader) -> None:
    """S13, Q4, K2: retained messages are purged; the batch accepted last can still be replayed."""
    rows = [run_batch(harness, reader, batch) for batch in (1, 2)]
    harness.publish_to("q", 1)
    harness.core.drain_dead_blocks()
    assert harness.do(c.PurgeQueue("q")) == 1
    assert harness.core.drain_dead_blocks() == [1, 3]
    assert labels(harness, 1) == []
    assert labels(harness, 2) == rows[1]
    _, (lease,) = views.find_retained(harness.core.state, "s", 1)
    assert views.retained_batch(harness.core.state, lease).holes == 3
    assert harness.do(c.PurgeQueue("q")) == 0


@pytest.mark.parametrize("how", ["delete", "release", "replace"])
def test_retention_ends_with_its_queue_and_session(
    harness: Harness, reader: Reader, how: str
) -> None:
    """S13, Q4, S9: a deleted queue or an ended session ends the retention of its batches."""
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    if how == "delete":
        harness.do(c.DeleteQueue("q", force=True))
        assert harness.core.drain_dead_blocks() == [1]
        assert labels(harness, 1) == []
    elif how == "release":
        harness.do(c.ReleaseSession("s"))
        assert harness.core.drain_dead_blocks() == [1, 2]
        with pytest.raises(SessionNotFoundError):
            again(harness, 1)
    else:
        harness.open("q", session="s")
        assert harness.core.drain_dead_blocks() == [1, 2]


def test_retention_gives_way_oldest_first(harness: Harness, reader: Reader) -> None:
    """S13: at the disk reserve the oldest batches of all sessions end, never one of a replay."""
    for batch in (1, 2, 3):
        run_batch(harness, reader, batch)
    assert harness.do(c.GiveWay(31)) == c.GaveWay(2, 60, ("session 's'",))
    assert retained(harness) == [3]
    assert harness.do(c.GiveWay(1)) == c.GaveWay(0, 0, ())


def test_what_is_not_retained_is_refused(harness: Harness, reader: Reader) -> None:
    """S13: a time before the oldest batch is refused once something was left out, not before."""
    for batch in (1, 2):
        run_batch(harness, reader, batch)
    state = harness.core.state
    first = views.find_retained(state, "s", 1)[1][0].accepted_us
    assert len(views.find_retained(state, "s", from_us=1)[1]) == 2
    assert len(views.find_retained(state, "s", from_us=first + 1)[1]) == 1
    assert views.find_retained(state, "s", to_us=first)[1] == []
    incarnation, leases = views.find_retained(state, "s")
    harness.do(c.GiveWay(1))
    with pytest.raises(PreconditionFailedError, match="1 batches of it are"):
        views.find_retained(state, "s", from_us=first)
    with pytest.raises(PreconditionFailedError, match="is not retained"):
        views.retained_pieces(state, "s", incarnation, 0, leases[-1].end, 10)


def test_an_older_snapshot_has_one_kept_lease(harness: Harness, reader: Reader) -> None:
    """S13, Q7: the lease accepted last of an older version's snapshot can be replayed."""
    rows = run_batch(harness, reader, 1)
    session = harness.core.state.sessions["s"]
    session.only_kept = session.kept.pop()
    harness.core = Core.restore(harness.core.snapshot())
    assert labels(harness, 1) == rows


@pytest.mark.parametrize("sizes", ["equal", "mixed"])
def test_what_a_retained_message_costs(harness: Harness, reader: Reader, sizes: str) -> None:
    """S13: at most 1 byte of a snapshot a message, and as much for sizes that differ (Q3)."""
    before, messages = len(harness.core.snapshot()), 0
    for batch in range(1, 11):
        each = np.arange(2000) % 200 + 1 if sizes == "mixed" else np.full(2000, 100)
        harness.do(harness.command(["q"] * 2000, sizes=each.tolist()))
        floor = reader.reply.end_tag
        end = reader.advance(floor).end_tag
        reader.note(batch_id=batch)
        reader.advance(end)
        messages += 2000
    cost = (len(harness.core.snapshot()) - before) / messages
    assert cost < (1 if sizes == "equal" else 2)


def run_large_batches(reader: Reader, numbers: range) -> None:
    """Publishes, leases and accepts batches of two blocks of 1,000 messages."""
    for batch in numbers:
        for _ in range(2):
            reader.harness.do(reader.harness.command(["q"] * 1_000))
        reader.advance(reader.reply.end_tag)
        reader.note(batch_id=batch)


def test_what_a_retained_message_costs_in_memory() -> None:
    """S13: under 1 byte with its batch: in bitmaps and arrays, and in objects of Python."""
    harness, batches = Unchecked(), 250
    harness.declare("q")
    reader = harness.open("q", retain_ms=HOUR_MS)
    run_large_batches(reader, range(batches))
    before = allocated()
    run_large_batches(reader, range(batches, 2 * batches))
    outside = allocated() - before
    tracemalloc.start()
    try:
        run_large_batches(reader, range(2 * batches, 3 * batches))
        python = tracemalloc.DomainFilter(inclusive=True, domain=0)
        traces = tracemalloc.take_snapshot().filter_traces((python,)).traces
    finally:
        tracemalloc.stop()
    assert len(retained(harness)) == 3 * batches - 1
    inside = sum(trace.size for trace in traces)
    print(f"{outside / batches:.0f} and {inside / batches:.0f} bytes a batch")
    assert outside + inside < 2_000 * batches
