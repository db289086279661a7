"""A day and more of a query that retains its batches, in broker time, on a real journal."""

import hashlib

import pytest

from ackq import limits
from ackq.errors import PreconditionFailedError
from ackq_broker.core import commands, views
from ackq_broker.core.core import Core
from ackq_broker.engine import recovery
from ackq_broker.engine.clock import BrokerClock
from ackq_broker.journal.failpoints import unarmed
from tests.unit.core.harness import ALICE, block_rows
from tests.unit.service.channel_streams import PUBLISHER, publish

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
HOURS = 30
# Of a batch: its messages, and the bytes of each.
MESSAGES, BODY_BYTES = 5, 400
SEGMENT_BYTES = 64 * 1024


class Day:
    """A broker on a data directory, whose clock the test moves, and a query that reads `q`."""

    def __init__(self, directory):
        self._directory = directory
        # By batch: what was read, and when it was accepted.
        self.batches, self.accepted_us = {}, {}
        self._end = self._published = 0
        self._incarnation = ""
        self.now_us = 1_800_000_000_000_000

    async def begin(self):
        """Begins the first process, and opens the session."""
        await self.start()
        self.engine.decide(commands.DeclareQueue("q", commands.QueueProperties()))
        self.engine.decide(commands.OpenPublisher(PUBLISHER))
        self._incarnation = self._advance(0, new_incarnation="1" * 32).incarnation

    def now_ns(self):
        """The clock of the machine."""
        return self.now_us * 1000

    async def start(self):
        """Begins a process."""
        recovered = recovery.recover(
            self._directory, sync=False, failpoint=unarmed, segment_bytes=SEGMENT_BYTES
        )
        self.engine = recovered.engine
        await self.engine.wait_synced()

    async def restart(self):
        """Ends the process, with the snapshot of a stop, and begins another."""
        await self.engine.close()
        await self.start()

    def minute(self, number):
        """Publishes a batch, accepts the one before, leases and reads, and housekeeps."""
        self.now_us += MINUTE_US
        bodies = [
            hashlib.shake_128(f"{number}.{row}".encode()).digest(BODY_BYTES)
            for row in range(MESSAGES)
        ]
        publish(self.engine, self._published + 1, *bodies)
        self._published += MESSAGES
        self.read(number)
        self.engine.decide(commands.Housekeep(frozenset({"s"})))

    def read(self, number):
        """Accepts the batch before, and leases and reads one: returns its rows."""
        self.accepted_us[number - 1] = self.now_us
        lease = self._advance(self._end)
        tags = self._end, lease.end_tag
        self._end = lease.end_tag
        note = lease.epoch, "query", "run", number, "", lease.end_tag
        self.engine.decide(commands.NoteFetch("s", self._incarnation, *note))
        pieces = views.fetch(self.state, "s", self._incarnation, lease.epoch, *tags)
        self.batches[number] = pieces, self._content(pieces)
        return rows(pieces)

    def again(self, number):
        """A retained batch as it is read now: its pieces, and their bytes."""
        incarnation, (lease,) = views.find_retained(self.state, "s", number)
        pieces = views.retained_pieces(self.state, "s", incarnation, lease.floor, lease.end, 100)
        return pieces, self._content(pieces)

    @property
    def state(self):
        return self.engine.core.state

    def retained(self):
        """The numbers of the batches that can be read again."""
        return [lease.batch_id for lease in views.find_retained(self.state, "s")[1]]

    def _content(self, pieces):
        return [self.engine.journal.read_block(piece.block_id) for piece in pieces]

    def _advance(self, start, **changes):
        opening = ("s", self._incarnation, ALICE, ("q",), start)
        return self.engine.decide(
            commands.Advance(*opening, retain_ms=24 * 3_600_000, **changes)
        ).reply


def rows(pieces):
    """The rows of pieces, each by its block and its row there."""
    return [(piece.block_id, row) for piece in pieces for row in block_rows(piece)]


async def test_a_day_is_retained_and_no_more(tmp_path, monkeypatch):
    """S13, S14, I5: 30 hours of a batch a minute: the last 24 stay, and 20 are read again once."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 4 * SEGMENT_BYTES)
    day = Day(tmp_path / "data")
    monkeypatch.setattr(
        recovery, "BrokerClock", lambda floor: BrokerClock(floor, day.now_ns, day.now_ns)
    )
    await day.begin()
    last = 60 * HOURS
    for number in range(1, last + 1):
        day.minute(number)
        if not number % 10:
            await day.engine.wait_synced()
    # The last batch is accepted by the next step.
    expected = list(range(last - 24 * 60 - 1, last))
    assert day.now_us - day.accepted_us[expected[0]] == 24 * HOUR_US
    assert day.retained() == expected
    state = day.engine.core.snapshot()
    assert Core.restore(state).snapshot() == state
    await day.restart()
    assert day.retained() == expected
    assert [day.again(number) for number in expected] == [day.batches[n] for n in expected]
    with pytest.raises(PreconditionFailedError, match=f"from batch {expected[0]}, "):
        day.again(expected[0] - 1)
    journal = day.engine.journal
    live = {piece.block_id for n in (*expected, last) for piece in day.batches[n][0]}
    assert set(journal._blocks.copy_table().ids().tolist()) == live
    assert journal.file_bytes() < 2 * journal.live_bytes()
    # An operator's rewind: everything is accepted.
    assert day.read(last + 1) == []
    since_us = day.now_us - 20 * HOUR_US
    again = [n for n in (*expected, last) if day.accepted_us[n] >= since_us]
    assert len(again) == 20 * 60 + 2
    rewind = commands.RewindSession("s", commands.Rewind(from_us=since_us))
    assert day.engine.decide(rewind).reply.messages == len(again) * MESSAGES
    assert day.read(last + 2) == [row for n in again for row in rows(day.batches[n][0])]
    assert day.read(last + 3) == []
    assert day.again(again[0]) == day.batches[again[0]]
    await day.engine.close()
