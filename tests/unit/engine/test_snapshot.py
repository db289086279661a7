"""Snapshots of an engine on a real journal, encoded in slices between other work."""

import asyncio
import errno
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from ackq.errors import ClosedError
from ackq_broker.core import commands, views
from ackq_broker.engine import recovery, snapshot
from ackq_broker.engine.snapshot import Pacing, unpack_state
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.journal.files.directory import snapshot_name
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.write import backup
from tests.fakes.journal import HeldEngine
from tests.unit.journal.running_journal import TIMEOUT_S

QUEUES = 300


@pytest.fixture
def one_piece_a_turn(monkeypatch):
    """Makes each slice as short as possible, and the next one follow in the next turn."""
    monkeypatch.setattr(snapshot, "_SLICE_S", 0)
    monkeypatch.setattr(snapshot, "_PAUSE_S", 0)


@asynccontextmanager
async def started(directory):
    """The engine of a data directory, with some queues."""
    recovered = recovery.recover(directory, sync=False, failpoint=unarmed)
    await recovery.wait_synced(recovered)
    for number in range(QUEUES):
        recovered.engine.decide(commands.DeclareQueue(f"q{number}"))
    try:
        yield recovered.engine
    finally:
        await recovered.engine.close()


def stored(directory, sequence):
    """The state in a snapshot on the disk, and its time."""
    state = snapshots.read(directory / snapshot_name(sequence)).state
    core, now_us = unpack_state(b"".join(state))
    return core.snapshot(), now_us


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_commands_go_on_while_a_snapshot_is_made(tmp_path):
    """I2, I5: the loop turns hundreds of times meanwhile, and changes are not in the snapshot."""
    async with started(tmp_path) as engine:
        expected, sequence = engine.core.snapshot(), engine.core.sequence
        now_us = engine.clock.now_us()
        written, turns = engine.snapshots.write(), 0
        while not written.done():
            await asyncio.sleep(0)
            turns += 1
            engine.decide(commands.DeleteQueue(f"q{turns}") if turns < QUEUES else commands.Tick())
        assert turns > QUEUES
        state, stored_us = stored(tmp_path, sequence)
        assert state == expected
        assert stored_us >= now_us
        left = views.list_queues(engine.core.state)
    recovered = recovery.recover(tmp_path, sync=False, failpoint=unarmed)
    assert views.list_queues(recovered.engine.core.state) == left
    await recovered.engine.close()


async def test_a_state_of_one_slice_is_written_at_once(monkeypatch):
    """I5: most snapshots are done before any other task runs."""
    monkeypatch.setattr(snapshot, "_SLICE_S", 3600)
    engine = HeldEngine()
    engine.snapshots.write()
    assert engine.journal.snapshots == [engine.core.sequence]
    engine.core.cut()  # the snapshot's cut is complete


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_queues_of_a_frame_are_captured_in_slices(tmp_path):
    """I6: a frame to many queues does not capture all of them in its decision."""
    async with started(tmp_path) as engine:
        expected, sequence = engine.core.snapshot(), engine.core.sequence
        routes = commands.Routes(tuple(f"q{number}" for number in range(QUEUES)))
        written, left = engine.snapshots.write(), []
        ready = asyncio.create_task(engine.ready("", routes))
        while not ready.done():
            left.append(len(engine.core.uncaptured("", routes)))
            await asyncio.sleep(0)
        assert engine.core.uncaptured("", routes) == []
        assert max(a - b for a, b in pairwise(left)) < QUEUES / 2
        assert not written.done()
        for name in routes.keys:
            engine.decide(commands.DeleteQueue(name))
        await asyncio.wrap_future(written)
        assert stored(tmp_path, sequence)[0] == expected
        assert engine.core.uncaptured("", routes) == []


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_a_second_snapshot_finishes_the_first(tmp_path):
    """I2: a shutdown, for example, may begin while a snapshot is made."""
    async with started(tmp_path) as engine:
        first = engine.snapshots.write()
        await asyncio.sleep(0)
        assert not first.done()
        engine.decide(commands.DeclareQueue("late"))
        expected, sequence = engine.core.snapshot(), engine.core.sequence
        second = engine.snapshots.write()
        await asyncio.wrap_future(first)
        await asyncio.wrap_future(second)
        assert stored(tmp_path, sequence)[0] == expected


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_a_backup_waits_for_a_snapshot(tmp_path, monkeypatch):
    """O5, I2: it does not encode the rest of a snapshot at once, which would hold up all others."""
    encode, slices = snapshot._Encoding.go_on, []

    def go_on(encoding, seconds):
        slices.append(seconds)
        encode(encoding, seconds)

    monkeypatch.setattr(snapshot._Encoding, "go_on", go_on)
    async with started(tmp_path / "data") as engine:
        written = engine.snapshots.write()
        made = await engine.snapshots.back_up(tmp_path / "backup")
        assert written.done()
    assert made.sequence == QUEUES + 1
    assert set(slices) == {0}


async def test_a_stop_ends_a_backup(tmp_path, monkeypatch):
    """O5: the last snapshot, which waits for a backup, waits for no copy of an hour."""

    def copy(*arguments):
        *_, going = arguments
        until_s = time.monotonic() + TIMEOUT_S
        while going() and time.monotonic() < until_s:
            time.sleep(0.001)
        raise ClosedError("stopped" if not going() else "copied for an hour")

    monkeypatch.setattr(backup, "back_up", copy)
    async with started(tmp_path) as engine:
        made = asyncio.ensure_future(engine.snapshots.back_up(tmp_path / "backup"))
        await asyncio.sleep(0)
    with pytest.raises(ClosedError, match="stopped"):
        await made


@pytest.mark.usefixtures("one_piece_a_turn")
async def test_an_abandoned_snapshot_does_not_count(tmp_path):
    """I2, P8: a broker that fails leaves no partial state under the name of a snapshot.

    The rest of a snapshot that could not be written is not encoded.
    """
    async with started(tmp_path) as engine:
        written = engine.snapshots.write()
        engine.snapshots.abandon()
        engine.snapshots.abandon()  # there is nothing to abandon
        with pytest.raises(ClosedError, match="abandoned"):
            await asyncio.wrap_future(written)
        for pattern in ("snapshot-*", "*.new"):
            assert list(tmp_path.glob(pattern)) == []
    engine = HeldEngine()
    engine.snapshots.write().set_exception(OSError(errno.ENOSPC, "No space left on device"))
    for _ in range(2):
        await asyncio.sleep(0)
    engine.core.cut()  # the failed snapshot's cut is closed


@pytest.mark.parametrize("begun", [False, True])
async def test_a_state_that_cannot_be_encoded(tmp_path, monkeypatch, begun):
    """O5, I2: a backup that fails ends the broker, and its parts never count as a whole.

    Nor do those of a snapshot that was begun before, which a stop finishes first.
    """
    data, target, ends = tmp_path / "data", tmp_path / "backup", []
    monkeypatch.setattr(recovery, "_die", ends.append)
    monkeypatch.setattr(snapshot, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(snapshot, "_SLICE_S", 0 if begun else 3600)
    async with started(data) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(snapshot.Cut, "pieces", unencodable)
            earlier = [engine.snapshots.write()] if begun else []
            with pytest.raises(OverflowError):
                await (engine.snapshots.write() if begun else engine.snapshots.back_up(target))
        assert list(map(type, ends)) == [OverflowError]
        for written in earlier:
            with pytest.raises(ClosedError, match="abandoned"):
                await asyncio.wrap_future(written)
        expected, sequence = engine.core.snapshot(), engine.core.sequence
        await asyncio.wrap_future(engine.snapshots.write())
        assert stored(data, sequence)[0] == expected
        assert not target.exists()


def unencodable(cut):
    """The pieces of a state that has a number too large for any record."""
    try:
        yield b"the first bytes of a state"
        raise OverflowError
    finally:
        cut.close()


def test_long_work_pauses_while_others_decide():
    """I6: from a short decision on, until none has come for a while.

    Without others' decisions a slice follows the one before at once.
    """
    now_s = [50.0]
    paced = Pacing(lambda: now_s[0])
    for _ in range(3):
        assert paced.pause_s() == 0
        paced.decisions += 1
        paced.long += 1
    for decided, later, pause_s in (
        (1, 0, snapshot._PAUSE_S),
        (0, 0.9, snapshot._PAUSE_S),
        (1, 0, snapshot._PAUSE_S),
        (0, 0.9, snapshot._PAUSE_S),
        (0, 0.2, 0),
    ):
        paced.decisions += decided
        now_s[0] += snapshot._LATELY_S * later
        assert paced.pause_s() == pause_s
