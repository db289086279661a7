"""The block table, reading blocks, and transient blocks."""

import errno
import os
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.errors import BlockNotFoundError, DamagedError
from ackq_broker.journal.files.block_table import ROW_BYTES, BlockTable, Location, as_ids
from ackq_broker.journal.read import blocks, scan
from ackq_broker.journal.write import transient
from tests.libraries import replace
from tests.unit.journal.running_journal import (
    block,
    block_bytes,
    block_parts,
    flip,
    kill,
    opened,
    recovered,
    segment_files,
)

# Block ids and offsets beyond the precision of a float are exact.
BASE = 1 << 62


def location(block_id, segment=1):
    return Location(segment, block_id, block_id % 7, block_id % 1000)


IDS = st.integers(BASE, BASE + 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5), st.integers(1, 3)),
        st.tuples(st.just("free"), st.sets(IDS, max_size=8)),
        st.tuples(st.just("move"), IDS, st.integers(4, 5)),
        st.tuples(st.just("copy")),
        st.tuples(st.just("bytes")),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_table_is_a_dict(steps):
    """After any operations a block table finds what a dict would find."""
    table, model, last = BlockTable(), {}, BASE
    for kind, *what in steps:
        if kind == "add":
            last += what[0]
            model[last] = location(last, what[1])
            table.add(last, model[last])
        elif kind == "free":
            freed = table.free(as_ids(what[0]))
            assert freed.found.tolist() == [number in model for number in what[0]]
            gone = [model.pop(number) for number in what[0] if number in model]
            assert sorted(freed.segments.tolist()) == sorted(place.segment for place in gone)
            assert freed.length == sum(place.length for place in gone)
        elif kind == "move":
            table.move(what[0], location(what[0], what[1]))
            if what[0] in model:
                model[what[0]] = location(what[0], what[1])
        elif kind == "copy":
            table = table.copy()
        else:
            table = BlockTable.from_bytes(memoryview(table.to_bytes()), len(table))
    every = range(BASE, last + 2)
    assert len(table) == len(model)
    assert {n: table.find(n) for n in every if table.find(n)} == model
    assert table.ids().tolist() == sorted(model)
    lengths = [model[n].length if n in model else 0 for n in every]
    assert table.lengths(as_ids(every)).tolist() == lengths
    live, segments = {}, {}
    for number, (segment, _, length, _) in sorted(model.items()):
        live[segment] = live.get(segment, 0) + length
        segments.setdefault(segment, []).append(number)
    assert table.live_bytes() == live
    assert {segment: table.of_segment(segment).tolist() for segment in live} == segments


def test_the_table_is_small():
    """I5: memory grows by 28 bytes per block, and rows of freed blocks are reused."""
    table = BlockTable()
    for number in range(20_000):
        table.add(number, location(number))
        if number >= 1000:
            table.free(np.array([number - 1000], dtype=np.uint64))
    assert sum(column.nbytes for column in table._columns.values()) <= 4 * 1024 * ROW_BYTES
    assert [table.find(number) is not None for number in (18_999, 19_000)] == [False, True]


def test_block_ids_ascend(data):
    """A block id below a used one is a bug of the caller, and is refused before any write."""
    with opened(data) as running:
        running.append(block(5))
        with pytest.raises(AssertionError, match="ascend"):
            running.journal.append([block(5)])
        running.journal.store_transient(6, (b"x",))
        with pytest.raises(AssertionError, match="ascend"):
            running.journal.store_transient(6, (b"x",))
    with opened(data) as running:
        with pytest.raises(AssertionError, match="ascend"):
            running.journal.append([block(4)])
        assert running.append(block(6)) == 2


@pytest.fixture
def failing_reads(monkeypatch):
    """Sectors that the disk cannot read: all of them while the set is not empty."""
    broken = set()

    def refusing(call):
        def read(*arguments):
            if broken:
                raise OSError(errno.EIO, "Input/output error")
            return call(*arguments)

        return read

    replace(monkeypatch, blocks, os, pread=refusing(os.pread))
    replace(monkeypatch, scan, os, preadv=refusing(os.preadv))
    return broken


@pytest.mark.parametrize("told", ["cannot read block 3", "block 3 is damaged on the disk"])
def test_a_block_that_cannot_be_read_is_met_by_its_reader(data, failing_reads, caplog, told):
    """Q7: for a lost sector or a flipped bit the error names the place; the journal goes on.

    Compaction leaves the block alone, and logs that.
    """
    with opened(data) as running:
        running.append_blocks(1, 11)
        running.journal.free_blocks(set(range(1, 12)) - {3})
        path = segment_files(data)[0]
        place = path.read_bytes().index(block_bytes(3))
        failing_reads.add("all") if "read" in told else flip(path, place)
        with pytest.raises(DamagedError, match=f"{told}: {path} byte {place}"):
            running.journal.read_block(3)
        running.snapshot()
        assert "compaction skips segment 1: " in caplog.text
        assert "block 3" in caplog.text
        assert path.exists()
        running.append(b"goes on")
        assert running.failures == []
        if failing_reads:
            failing_reads.clear()
            running.check_blocks([3])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), "cannot read block 1: {} byte .* error"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "block 1 is lost: {} is missing"),
    ],
    ids=["unreadable", "deleted"],
)
def test_a_segment_that_cannot_be_opened_is_met_by_its_reader(data, monkeypatch, error, told):
    """Q5: the error names the file of a live block, unreadable or deleted."""
    with opened(data) as running:
        running.append(block(1))
        path = segment_files(data)[0]

        def refuse(*_):
            raise type(error)(*error.args, str(path))

        with monkeypatch.context() as patched:
            replace(patched, blocks, os, open=refuse)
            with pytest.raises(DamagedError, match=told.format(path)):
                running.journal.read_block(1)
        running.check_blocks([1])


def test_a_start_that_cannot_read_the_log_takes_nothing_for_a_torn_tail(data, failing_reads):
    """Q7, O4: its records may have been answered: the error names the file, nothing is changed.

    All records are recovered when the disk can be read again.
    """
    with opened(data) as running:
        running.append_blocks(1, 3)
        kill(running)
    before = {path.name: path.read_bytes() for path in data.glob("journal-*")}
    failing_reads.add("all")
    with pytest.raises(OSError, match="Input/output error") as failed:
        recovered(data)
    assert failed.value.filename == str(segment_files(data)[-1])
    failing_reads.clear()
    assert {path.name: path.read_bytes() for path in data.glob("journal-*")} == before
    assert [sequence for sequence, _ in recovered(data).records] == [1, 2, 3]


def test_many_segments_need_few_files(data, monkeypatch):
    """Files are kept open only for the segments that were read last."""
    monkeypatch.setattr("ackq_broker.journal.read.blocks._MAX_OPEN_FILES", 3)
    with opened(data) as running:
        running.append_blocks(1, 59)
        running.check_blocks([*range(1, 60), *range(59, 0, -1)])
        assert len(running.journal._blocks._files._open) == 3


def test_transient_blocks(data, monkeypatch):
    """P5: transient blocks are readable until they are freed; a file goes with its last block."""
    monkeypatch.setattr(transient, "_FILE_BYTES", 2000)
    with opened(data) as running:
        for number in range(1, 11):
            running.journal.store_transient(number, block_parts(number))
        spilled = running.journal._transient._writer
        spilled.submit(lambda: None).result()
        assert running.journal.unsynced_bytes == 0
        files = sorted(data.glob("transient-*"))
        assert len(files) == 3
        running.check_blocks(range(1, 11))
        running.journal.free_blocks([1, 2, 3, 4, 7])
        assert sorted(data.glob("transient-*")) == files[1:]
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(3)
        running.check_blocks([8])

    assert list(data.glob("transient-*")) == []


def test_a_transient_block_freed_before_it_is_written(data):
    """A transient block that is freed before its turn is never written."""
    go_on = threading.Event()
    with opened(data) as running:
        running.journal._transient._writer.submit(go_on.wait)
        running.journal.store_transient(1, block_parts(1))
        running.journal.store_transient(2, block_parts(2))
        assert running.journal.unsynced_bytes == 1200
        assert running.journal.read_block(1) == block_bytes(1)
        running.journal.free_blocks([1])
        with pytest.raises(BlockNotFoundError):
            running.journal.read_block(1)
        go_on.set()
        running.journal._transient._writer.submit(lambda: None).result()
        (path,) = data.glob("transient-*")
        assert path.read_bytes() == block_bytes(2)


def test_durable_and_transient_blocks_share_their_ids(data):
    """Durable and transient blocks are freed in one call; ids that are not live are ignored."""
    with opened(data) as running:
        running.append(block(1))
        running.journal.store_transient(2, block_parts(2))
        running.append(block(3))
        running.journal.free_blocks([1, 2, 99])
        running.append(b"later")
        for freed in (1, 2):
            with pytest.raises(BlockNotFoundError):
                running.journal.read_block(freed)
        running.check_blocks([3])


@pytest.mark.parametrize("error", [DamagedError("other bytes"), FileNotFoundError()])
@pytest.mark.parametrize("moved", [True, False])
def test_a_block_that_moves_while_it_is_read_is_not_damaged(data, monkeypatch, moved, error):
    """I2: its segment may be written over or deleted before a read has ended; freed, it is gone."""
    with opened(data) as running:
        running.append(block(1))
        found = running.journal._blocks
        old = found.locate(1)

        def read(_, place):
            if place != old:
                return b"from its new place"
            found.move(1, old._replace(offset=0)) if moved else found.free(as_ids([1]))
            raise error

        monkeypatch.setattr(found._files, "read", read)
        with nullcontext() if moved else pytest.raises(BlockNotFoundError):
            assert found.read(1) == b"from its new place"
