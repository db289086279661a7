"""The memory alarm: on and off, waiting streams, and streams ended at the limit."""

import asyncio
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from ackq import limits
from ackq.errors import BrokerUnavailableError
from ackq_broker.engine.in_flight import InFlight
from tests.unit.service.channel_streams import run_until_idle

LIMIT = 1_000


class Machine:
    """The memory of a process, its unsynced bytes, and its clock."""

    def __init__(self):
        self.used = self.unsynced = 0
        self.now_s = 0.0
        self.in_flight = InFlight(
            LIMIT, lambda: self.used, lambda: self.unsynced, lambda: self.now_s
        )


@pytest.fixture
def machine():
    return Machine()


def begin(machine, count=1, *, brings=True):
    """Begins streams, each a task that runs until it is ended; returns tasks with their parts."""

    async def run(started):
        with machine.in_flight.stream(brings=brings) as part:
            started.set_result(part)
            await asyncio.Event().wait()

    async def all_of():
        streams = []
        for _ in range(count):
            started = asyncio.get_running_loop().create_future()
            task = asyncio.ensure_future(run(started))
            streams.append((task, await started))
        return streams

    return all_of()


@contextmanager
def ended(*tasks):
    """Cancels tasks at the end."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


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
    machine.__dict__.update({name: value - 1 for name, value in on.items()})
    assert not machine.in_flight.poll()
    for values, alarm in ((on, True), (still_on, True), (off, False)):
        machine.__dict__.update(values)
        assert bool(machine.in_flight.poll()) is alarm, values


async def test_nothing_in_flight_is_no_reason_to_block(machine):
    """P14: blocking publishers would not free the memory of queues and of the allocator."""
    machine.used = 940
    assert not machine.in_flight.poll()


async def test_reads_wait_for_room(machine):
    """P14, I6: a read reserves its expected bytes; one read may always run; quiet ones yield."""
    gates = [asyncio.Event() for _ in range(4)]
    reading = []

    async def read(number):
        reading.append(number)
        await gates[number].wait()

    with ExitStack() as stack:
        machine.in_flight.limit = 100 << 20
        parts = [
            stack.enter_context(machine.in_flight.stream(brings=True)) for _ in range(len(gates))
        ]
        parts[0].expected = 200 << 20
        tasks = [
            asyncio.ensure_future(part.next(partial(read, number)))
            for number, part in enumerate(parts)
        ]
        await run_until_idle()
        assert reading == [0]
        gates[0].set()
        await run_until_idle()
        assert reading == [0, 1, 2, 3]
        tasks.append(asyncio.ensure_future(parts[0].next(partial(read, 0))))
        await run_until_idle()
        assert len(reading) == 4
        machine.now_s += 1
        machine.in_flight.poll()
        await run_until_idle()
        assert len(reading) == 5
        for gate in gates:
            gate.set()
        await asyncio.gather(*tasks)
        assert [machine.in_flight._small.room, machine.in_flight._large.room] == [0, 0]


class Reads:
    """Reads of streams that end when the test says so, and the numbers of those that began."""

    def __init__(self, stack, in_flight, expected):
        self.began = []
        self.gates = [asyncio.Event() for _ in expected]
        self.tasks = []
        for number, size in enumerate(expected):
            part = stack.enter_context(in_flight.stream(brings=True))
            part.expected = size
            self.tasks.append(asyncio.ensure_future(part.next(partial(self._read, number))))

    async def _read(self, number):
        self.began.append(number)
        await self.gates[number].wait()

    async def end(self, *numbers):
        for number in numbers:
            self.gates[number].set()
        await run_until_idle()


async def test_an_unfinished_read_keeps_its_room(machine):
    """P14, I6: however slow the machine is, large reads beyond the room go on one at a time."""
    machine.in_flight.limit = 100 << 20
    with ExitStack() as stack:
        reads = Reads(stack, machine.in_flight, [16 << 20] * 40)
        await run_until_idle()
        assert reads.began == [0, 1, 2, 3]
        machine.used = 4 << 20
        for turns in range(1, 6):
            machine.now_s += 0.6
            machine.in_flight.poll()
            await run_until_idle()
            assert len(reads.began) == 4 + turns
        await reads.end(8)
        assert len(reads.began) == 10
        machine.now_s += limits.STALLED_MS / 1000
        machine.in_flight.poll()
        await run_until_idle()
        assert len(reads.began) == 14
        await reads.end(*range(40))
        await asyncio.gather(*reads.tasks)
        assert sorted(reads.began) == list(range(40))


async def test_small_reads_pass_large_ones(machine):
    """P14: large reads that wait for room, or are quiet in it, delay no small one."""
    machine.in_flight.limit = 100 << 20
    small = list(range(10, 40))
    with ExitStack() as stack:
        reads = Reads(stack, machine.in_flight, [16 << 20] * 10 + [128 << 10] * 30)
        await run_until_idle()
        assert reads.began == [0, 1, 2, 3, *small]
        await reads.end(*small)
        machine.now_s += 0.6
        machine.used = 4 << 20
        machine.in_flight.poll()
        more = Reads(stack, machine.in_flight, [128 << 10] * 300)
        await run_until_idle()
        assert (len(reads.began), len(more.began)) == (35, 300)
        await reads.end(*range(10))
        await more.end(*range(300))
        await asyncio.gather(*reads.tasks, *more.tasks)


async def test_the_reason_has_figures_and_the_remedy(machine):
    """P14: the reason has the used bytes, the limit, and the remedy."""
    machine.used = 800
    machine.unsynced = 60
    reason = machine.in_flight.poll()
    assert "uses 800 of 1000 bytes; 60 are" in reason
    assert "--memory-limit" in reason


async def test_what_streams_hold_counts_at_once(machine):
    """P14: the alarm is on with the request that is too much, before any poll."""
    stream = machine.in_flight.stream
    with stream(brings=True) as one, stream(brings=False) as other:
        one.add(200)
        assert not machine.in_flight.reason
        other.add(51)
        assert machine.in_flight.reason
        one.remove(200)
        assert machine.in_flight.held == 51
        machine.in_flight.poll()
        assert not machine.in_flight.reason
    assert machine.in_flight.held == 0


async def test_what_streams_bring_is_polled_by_its_size(machine):
    """P14: the process's memory is polled by incoming bytes, whatever the timer."""
    machine.used, machine.unsynced = 800, 60
    with machine.in_flight.stream(brings=True) as part:
        for _ in range(2):
            assert not machine.in_flight.reason
            part.add(8)
            part.remove(8)
        assert machine.in_flight.reason


async def test_an_idle_broker_polls_seldom(machine):
    """P14: polls are frequent only while bytes are in flight, reads wait or the alarm is on."""
    seldom = machine.in_flight.poll_s
    with machine.in_flight.stream(brings=True) as part:
        part.add(16)
        assert machine.in_flight.poll_s < seldom
        part.remove(16)
        assert machine.in_flight.poll_s == seldom
        machine.unsynced = 251
        machine.in_flight.poll()
        machine.unsynced = 0
        assert machine.in_flight.poll_s < seldom
        machine.in_flight.poll()
        assert machine.in_flight.poll_s == seldom


async def test_no_stream_is_read_from_while_it_is_on(machine):
    """P14: a stream's next read waits until the alarm is off."""
    reads = []

    async def read():
        reads.append(1)

    with machine.in_flight.stream(brings=True) as part:
        machine.unsynced = 300
        machine.in_flight.poll()
        waiting = asyncio.ensure_future(part.next(read))
        await run_until_idle()
        assert not reads
        machine.unsynced = 0
        machine.in_flight.poll()
        await waiting
        assert reads


async def test_at_the_limit_the_newest_streams_are_ended(machine):
    """P14, I6: one in ten of them at a time, the oldest last, with an error that is retried."""
    streams = await begin(machine, 30)
    with ended(*(task for task, _ in streams)):
        machine.used = LIMIT
        machine.in_flight.poll()
        await run_until_idle()
        assert not any(task.done() for task, _ in streams)
        machine.used = LIMIT + 1
        machine.in_flight.poll()
        await run_until_idle()
        assert [task.done() for task, _ in streams] == [False] * 27 + [True] * 3
        assert isinstance(streams[-1][0].exception(), BrokerUnavailableError)
        readers = await begin(machine, 2, brings=False)
        machine.in_flight.poll()
        await run_until_idle()
        assert not streams[26][0].done()
        for _ in range(60):
            machine.now_s += 1
            machine.in_flight.poll()
            await run_until_idle()
        assert all(task.done() for task, _ in streams)
        with ended(*(task for task, _ in readers)):
            assert not any(task.done() for task, _ in readers)


async def test_a_stream_that_holds_bytes_and_stands_still_is_ended(machine):
    """P14, I6: while memory is short; streams that move, or wait for the disk, are spared."""
    (still, part), (moving, moved), (idle, _) = await begin(machine, 3)
    with ended(still, moving, idle):
        part.add(150)
        moved.add(150)
        assert machine.in_flight.reason
        machine.now_s = limits.STALLED_MS / 1000 - 1
        moved.remove(1)
        machine.now_s += 2
        machine.unsynced = limits.MAX_UNSYNCED_BYTES + 1
        machine.in_flight.poll()
        await run_until_idle()
        assert not still.done()
        machine.unsynced = 0
        machine.in_flight.poll()
        await run_until_idle()
        assert (still.done(), moving.done(), idle.done()) == (True, False, False)
        assert machine.in_flight.held == 149
        with pytest.raises(BrokerUnavailableError, match="nothing moved"):
            await still


async def test_a_stream_whose_client_goes_is_cancelled_as_ever(machine):
    """P14: only a stream that the alarm ends gets the alarm's error."""
    ((task, part),) = await begin(machine)
    part.add(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert machine.in_flight.held == 0


async def test_many_streams_may_end_while_they_are_ended(machine):
    """I6: a poll that ends the only stream, and one without streams, are no error."""
    machine.used = LIMIT + 1
    machine.in_flight.poll()
    with ExitStack():
        ((task, _),) = await begin(machine)
        machine.now_s += 1
        machine.in_flight.poll()
        await asyncio.gather(task, return_exceptions=True)
        assert isinstance(task.exception(), BrokerUnavailableError)
    machine.in_flight.poll()
