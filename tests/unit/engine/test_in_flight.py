"""The memory alarm: on and off, waiting streams, and streams ended at the limit."""

import asyncio
from contextlib import ExitStack
from functools import partial

import pytest

from ackq import limits
from ackq.errors import BrokerUnavailableError
from ackq_broker.engine.in_flight import InFlight
from tests.unit.service.channel_streams import run_until_idle

LIMIT = 1_000


class Machine:
    """The memory of a process, its unsynced bytes, its clock, and what it runs until its end."""

    def __init__(self):
        self.used = self.unsynced = 0
        self.now_s = 0.0
        self.in_flight = InFlight(
            LIMIT, lambda: self.used, lambda: self.unsynced, lambda: self.now_s
        )

    async def poll(self, later_s=0, **state):
        """Polls some time later, with other memory, and lets the streams run: the reason."""
        self.now_s += later_s
        vars(self).update(state)
        reason = self.in_flight.poll()
        await run_until_idle()
        return reason

    async def begin(self, count, *, brings=True):
        """Begins streams that run until they are ended; returns tasks with their parts."""
        parts = []

        async def run():
            with self.in_flight.stream(brings=brings) as part:
                parts.append(part)
                await asyncio.Event().wait()

        tasks = [asyncio.ensure_future(run()) for _ in range(count)]
        await run_until_idle()
        return list(zip(tasks, parts, strict=True))


@pytest.fixture
def machine():
    return Machine()


@pytest.mark.parametrize(
    ("on", "still_on", "off"),
    [
        ({"unsynced": 251}, {"unsynced": 126}, {"unsynced": 125}),
        ({"used": 751, "unsynced": 51}, {"used": 651, "unsynced": 26}, {"used": 650}),
        ({"used": 751, "unsynced": 51}, {"unsynced": 26, "used": 651}, {"unsynced": 25}),
    ],
)
async def test_the_alarm_goes_off_below_where_it_went_on(machine, on, still_on, off):
    """P14: by the process's memory, by bytes in flight, and by both together."""
    assert not await machine.poll(**{name: value - 1 for name, value in on.items()})
    for values, alarm in ((on, True), (still_on, True), (off, False)):
        assert bool(await machine.poll(**values)) is alarm, values


class Reads:
    """Reads of streams that end when the test says so, and the numbers of those that began."""

    def __init__(self, stack, in_flight, expected):
        in_flight.limit = 100 << 20
        self.began = []
        self.gates = [asyncio.Event() for _ in expected]
        self.parts = [stack.enter_context(in_flight.stream(brings=True)) for _ in expected]
        self.tasks = []
        for number, size in enumerate(expected):
            if size:
                self.parts[number].expected = size
            self.begin(number)

    def begin(self, number):
        """Begins a read of a stream."""
        read = self.parts[number].next(partial(self._read, number))
        self.tasks.append(asyncio.ensure_future(read))

    async def _read(self, number):
        self.began.append(number)
        await self.gates[number].wait()

    async def end(self, *numbers):
        for number in numbers:
            self.gates[number].set()
        await run_until_idle()


async def test_reads_wait_for_room(machine):
    """P14, I6: a read reserves its expected bytes; one read may always run; quiet ones yield.

    While the alarm is on no stream is read from.
    """
    with ExitStack() as stack:
        reads = Reads(stack, machine.in_flight, [200 << 20, 0, 0, 0])
        await run_until_idle()
        assert reads.began == [0]
        await reads.end(0)
        assert reads.began == [0, 1, 2, 3]
        reads.begin(0)
        await run_until_idle()
        assert len(reads.began) == 4
        await machine.poll(later_s=1)
        assert len(reads.began) == 5
        await machine.poll(unsynced=30 << 20)
        await reads.end(*range(4))
        reads.begin(0)
        await run_until_idle()
        assert len(reads.began) == 5
        await machine.poll(unsynced=0)
        assert len(reads.began) == 6
        await asyncio.gather(*reads.tasks)
        assert [machine.in_flight._small.room, machine.in_flight._large.room] == [0, 0]


async def test_an_unfinished_read_keeps_its_room(machine):
    """P14, I6: however slow the machine is, large reads beyond the room go on one at a time."""
    with ExitStack() as stack:
        reads = Reads(stack, machine.in_flight, [16 << 20] * 40)
        await run_until_idle()
        assert reads.began == [0, 1, 2, 3]
        for turns in range(1, 6):
            await machine.poll(later_s=0.6, used=4 << 20)
            assert len(reads.began) == 4 + turns
        await reads.end(8)
        assert len(reads.began) == 10
        await machine.poll(later_s=limits.STALLED_MS / 1000)
        assert len(reads.began) == 14
        await reads.end(*range(40))
        await asyncio.gather(*reads.tasks)
        assert sorted(reads.began) == list(range(40))


async def test_small_reads_pass_large_ones(machine):
    """P14: large reads that wait for room, or are quiet in it, delay no small one."""
    small = list(range(10, 40))
    with ExitStack() as stack:
        reads = Reads(stack, machine.in_flight, [16 << 20] * 10 + [128 << 10] * 30)
        await run_until_idle()
        assert reads.began == [0, 1, 2, 3, *small]
        await reads.end(*small)
        await machine.poll(later_s=0.6, used=4 << 20)
        more = Reads(stack, machine.in_flight, [128 << 10] * 300)
        await run_until_idle()
        assert (len(reads.began), len(more.began)) == (35, 300)
        await reads.end(*range(10))
        await more.end(*range(300))
        await asyncio.gather(*reads.tasks, *more.tasks)


async def test_what_streams_hold_counts_at_once(machine):
    """P14: the alarm is on with the request that is too much, before any poll.

    The process's memory is polled by incoming bytes, whatever the timer; an idle broker polls
    seldom.
    """
    in_flight = machine.in_flight
    seldom = in_flight.poll_s
    with in_flight.stream(brings=True) as one, in_flight.stream(brings=False) as other:
        one.add(200)
        assert not in_flight.reason
        assert in_flight.poll_s < seldom
        other.add(51)
        assert in_flight.reason
        one.remove(200)
        assert in_flight.held == 51
        assert not await machine.poll()
    assert (in_flight.held, in_flight.poll_s) == (0, seldom)
    machine.used, machine.unsynced = 800, 60
    with in_flight.stream(brings=True) as part:
        for _ in range(2):
            assert not in_flight.reason
            part.add(8)
            part.remove(8)
        reason = in_flight.reason
    assert "uses 800 of 1000 bytes; 68 are" in reason
    assert "--memory-limit" in reason
    machine.unsynced = 0
    assert in_flight.poll_s < seldom
    assert not await machine.poll(used=940)
    assert in_flight.poll_s == seldom


def done(streams):
    return [task.done() for task, _ in streams]


async def test_at_the_limit_the_newest_streams_are_ended(machine):
    """P14, I6: one in ten of them at a time, the oldest last, with an error that is retried.

    A poll without streams is no error.
    """
    streams = await machine.begin(30)
    await machine.poll(used=LIMIT)
    assert not any(done(streams))
    await machine.poll(used=LIMIT + 1)
    assert done(streams) == [False] * 27 + [True] * 3
    readers = await machine.begin(2, brings=False)
    await machine.poll()
    assert not streams[26][0].done()
    for _ in range(60):
        await machine.poll(later_s=1)
    assert (all(done(streams)), any(done(readers))) == (True, False)
    assert {type(task.exception()) for task, _ in streams} == {BrokerUnavailableError}
    for task, _ in readers:
        task.cancel()
    await run_until_idle()
    await machine.poll(later_s=1)


async def test_a_stream_that_holds_bytes_and_stands_still_is_ended(machine):
    """P14, I6: while memory is short; streams that move, or wait for the disk, are spared.

    A stream whose client goes is cancelled without the alarm's error.
    """
    streams = (still, part), (moving, moved), _ = await machine.begin(3)
    part.add(150)
    moved.add(150)
    assert machine.in_flight.reason
    machine.now_s = limits.STALLED_MS / 1000 - 1
    moved.remove(1)
    await machine.poll(later_s=2, unsynced=limits.MAX_UNSYNCED_BYTES + 1)
    assert not still.done()
    await machine.poll(unsynced=0)
    assert (done(streams), machine.in_flight.held) == ([True, False, False], 149)
    with pytest.raises(BrokerUnavailableError, match="nothing moved"):
        await still
    moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert machine.in_flight.held == 0
