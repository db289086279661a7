"""Drives a core as the service does, and checks the invariants of the core at every step.

`decide` changes nothing (compared by snapshot), a record survives its encoding, a second core that
is fed the decoded records alone has the same state, byte for byte, and a snapshot that is taken
piece by piece meanwhile is the state at its cut (I2).
"""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c

PUBLISHER = b"p" * 16
ALICE = c.HolderInfo(b"alice".ljust(16), "host-a", 11, "app-a")
BOB = c.HolderInfo(b"bob".ljust(16), "host-b", 22, "app-b")
BY_NAME = c.LeaseOwner(session="s")
REJECTED, FAILED, RELEASED = Outcome.REJECTED, Outcome.FAILED, Outcome.RELEASED
SECOND_US = 1_000_000
DAY_US = 24 * 3600 * SECOND_US


class Harness:
    """A core with a clock, a log of its records and the label of every published message."""

    def __init__(self):
        self.core = Core()
        self.mirror = Core()
        self.now_us = 1_700_000_000 * SECOND_US
        self.log = []
        self.labels = {}
        self.number = 1
        self.incarnations = 0
        self.snapshots = SlowSnapshots()
        self.do(c.Start("history"))
        self.do(c.OpenPublisher(PUBLISHER))

    def decide(self, command):
        """Decides and applies a command; returns the decision."""
        self.now_us += 1
        before = self.core.snapshot()
        try:
            decision = self.core.decide(command, self.now_us)
        finally:
            assert self.core.snapshot() == before
        self.snapshots.go_on(self.core)
        for record in decision.records:
            decoded = records.decode(records.encode(record))
            self.log.append(decoded)
            self.core.apply(self.core.sequence + 1, record)
            self.mirror.apply(self.mirror.sequence + 1, decoded)
        assert self.mirror.snapshot() == self.core.snapshot()
        for queue in self.core._state.queues.values():
            queue.check()
        return decision

    def do(self, command):
        """Decides and applies a command; returns its reply."""
        return self.decide(command).reply

    def restart(self):
        """Starts a new process over the same records; returns how many messages vanished (Q7)."""
        self.core = Core.restore(self.core.snapshot())
        self.mirror = Core()
        for sequence, record in enumerate(self.log, 1):
            self.mirror.apply(sequence, record)
        return self.do(c.Start("history")).vanished

    # --- publishing ---

    def declare(self, *names, **properties):
        """Declares queues."""
        for name in names:
            self.do(c.DeclareQueue(name, c.QueueProperties(**properties)))

    def bind(self, exchange, kind, **queues):
        """Declares an exchange with a binding key for each queue."""
        self.do(c.DeclareExchange(exchange, kind))
        for queue, key in queues.items():
            self.do(c.Bind(exchange, queue, key))

    def command(
        self,
        keys,
        *,
        numbers=None,
        exchange="",
        mandatory=True,
        persistent=True,
        row_bytes=10,
        sizes=(),
        lowest=1,
        ttls_ms=(),
    ):
        """A publish of one row for each key; `ttls_ms` (0 for none) and `sizes` are by row."""
        keys = list(keys)
        sizes = list(sizes) or [row_bytes] * len(keys)
        if numbers is None:
            numbers = range(self.number, self.number + len(keys))
            self.number += len(keys)
        who = PUBLISHER, BitMap64(numbers), lowest
        block = exchange, mandatory, routes(keys), len(keys), sum(sizes), persistent
        expiries = self.expiries(list(ttls_ms))
        return c.Publish(*who, *block, expiries=expiries, sizes=mixed(sizes))

    def expiries(self, ttls_ms):
        """The expiries of rows with these TTLs, from now on; 0 for never."""
        rows = {ttl: BitMap() for ttl in sorted(set(ttls_ms) - {0})}
        for row, ttl in enumerate(ttls_ms):
            if ttl:
                rows[ttl].add(row)
        return tuple(c.Expiry(self.now_us + 1000 * ttl, some) for ttl, some in rows.items())

    def send(self, command):
        """Publishes; the message with number N gets the label `mN`."""
        reply = self.do(command)
        if reply.block_id is not None:
            for row, number in enumerate(command.numbers):
                self.labels[reply.block_id, row] = f"m{number}"
        return reply

    def publish(self, keys, **options):
        """Publishes one row for each key."""
        return self.send(self.command(keys, **options))

    def publish_to(self, queue, count, **options):
        """Publishes `count` messages to one queue."""
        return self.publish([queue] * count, **options)

    def together(self, queue, sizes, others):
        """Publishes a row of this and of each other publisher in one block, under one number.

        The rows get the labels `mN`, `mN.1`, `mN.2` and so on.
        """
        for other in others:
            if other not in self.core.state.publishers:
                self.do(c.OpenPublisher(other))
        number, count, block_id = self.number, len(sizes), self.core.state.next_block_id
        self.number += 1
        who = (PUBLISHER, *others), (number,) * count, (1,) * count
        block = "", c.Routes((queue,)), sum(sizes), mixed(sizes)
        placed = self.do(c.PublishTogether(*who, *block))
        if placed:
            for row in range(count):
                self.labels[block_id, row] = f"m{number}.{row}" if row else f"m{number}"
        return placed

    def declare_filled(self, queue, count, **properties):
        """Declares a queue and publishes `count` messages to it."""
        self.declare(queue, **properties)
        self.publish_to(queue, count)

    # --- stages ---

    def stage(self, writer, batch_id, keys, *, run_id="run", name, sizes=(), ttls_ms=()):
        """Seals a stage with one row for each key; row i has the label `nameI`."""
        keys = list(keys)
        sizes = list(sizes) or [10] * len(keys)
        stage_id = name.encode().ljust(16)
        self.do(c.OpenStage(stage_id, writer, batch_id, run_id))
        size = sum(sizes)
        if keys:
            block = c.StageBlock(stage_id, "", routes(keys), len(keys), size, sizes=mixed(sizes))
            staged = self.do(replace(block, expiries=self.expiries(list(ttls_ms))))
            for row in range(len(keys)):
                self.labels[staged.block_id, row] = f"{name}{row}"
        self.do(c.SealStage(stage_id, len(keys), size))
        return c.StageRef(stage_id, len(keys), size)

    def commit(self, writer, batch_id, *stages, run_id="run", execution_id="", **options):
        """Commits a batch."""
        command = c.CommitBatch(writer, batch_id, run_id, execution_id, stages, **options)
        return self.do(command)

    # --- sessions ---

    def open(self, *queues, session="s", holder=ALICE, **options):
        """Opens a session and returns its reader."""
        self.incarnations += 1
        options = {"new_incarnation": f"{self.incarnations:032x}", **options}
        command = c.Advance(session, "", holder, queues, 0, **options)
        reply = self.do(command)
        return Reader(self, replace(command, session=reply.session), reply)

    def lease(self, *queues, session="s", holder=ALICE, **changes):
        """Opens a session, leases its first messages, and returns its reader."""
        reader = self.open(*queues, session=session, holder=holder)
        reader.advance(0, **changes)
        return reader

    # --- channels ---

    def deliver(self, channel, queue, count=1_000, **options):
        """Delivers to a channel; returns (tag, label, delivery count) of each message."""
        delivery = self.do(c.Deliver(channel.encode(), queue, count, **options))
        rows = self.rows(delivery.pieces)
        assert delivery.messages == len(rows)
        if options.get("no_ack"):
            self.core.unpin(delivery.pieces)
        return rows

    def settle(self, channel, outcome, *tags, **options):
        """Settles tags of a channel."""
        command = c.Settle(channel.encode(), outcome, BitMap64(tags), **options)
        return self.do(command)

    def consume(self, queue, outcome, count=1_000, **options):
        """Delivers to the channel `x`, and settles all of it; returns the labels."""
        rows = self.deliver("x", queue, count)
        self.settle("x", outcome, *(tag for tag, _, _ in rows), **options)
        return [label for _, label, _ in rows]

    def transact(self, keys, **options):
        """Begins a transaction with a row for each key; returns the ids of publisher and it."""
        names = publisher_id, _ = b"t" * 16, b"1" * 16
        self.do(c.OpenPublisher(publisher_id, transactional=True))
        each = self.command(keys, **options)
        block = each.numbers, each.exchange, each.mandatory, each.routes, each.rows
        sizes = {"payload_bytes": each.payload_bytes, "sizes": each.sizes}
        self.do(c.TransactionBlock(*names, *block, persistent=each.persistent, **sizes))
        return names

    def wait(self, seconds):
        """Moves the clock on and ticks, so that due timers fire."""
        self.now_us += int(seconds * SECOND_US)
        ticked = self.do(c.Tick())
        due_us = views.next_due_us(self.core.state)
        assert due_us == 0 or due_us > self.now_us
        return ticked

    def housekeep_after(self, time_us):
        """Moves the clock on and housekeeps, so that the broker forgets old state."""
        self.now_us += time_us
        self.do(c.Housekeep())

    def rows(self, pieces):
        """(tag, label, delivery count) of the rows of pieces."""
        pieces = list(pieces)
        runs = [(run, row) for piece in pieces for run in piece.runs for row in range(run.rows)]
        return [
            (run.first_tag + row, label, run.delivery_count)
            for (run, row), label in zip(runs, self.read(pieces), strict=True)
        ]

    def info(self, queue):
        """A queue as an operator sees it."""
        return views.list_queues(self.core.state, queue)[0]

    def read(self, pieces):
        """The labels of the rows of pieces, in order."""
        return [self.labels[piece.block_id, row] for piece in pieces for row in block_rows(piece)]

    def browse(self, queue):
        """The labels of the messages in a queue, in order."""
        return self.read(views.browse(self.core.state, queue))

    def ready(self, queue):
        """The number of ready messages of a queue."""
        return self.info(queue).ready

    def unacked(self, queue):
        """The number of unacked messages of a queue."""
        return self.info(queue).unacked


class Unchecked(Harness):
    """A harness without checks, for many commands."""

    def decide(self, command):
        self.now_us += 1
        decision = self.core.decide(command, self.now_us)
        for record in decision.records:
            self.core.apply(self.core.sequence + 1, record)
        return decision


class SlowSnapshots:
    """Takes snapshots of a core now and then, in more pieces than one command leaves time for."""

    def __init__(self):
        self._core = None
        self._expected = b""
        self._pieces = iter(())
        self._taken = []
        self._step = 1
        self._pause = 0

    def go_on(self, core):
        """Takes some pieces before a command is applied; checks the snapshot when it is whole."""
        if self._pause:
            self._pause -= 1
            return
        if core is not self._core:
            self._core, self._expected = core, core.snapshot()
            self._pieces, self._taken = core.cut().pieces(), []
        self._step = self._step % 97 * 2 + 1
        took = list(islice(self._pieces, self._step))
        self._taken += took
        if len(took) < self._step:
            assert Core.restore(b"".join(self._taken)).snapshot() == self._expected
            self._core, self._pause = None, 10


class Reader:
    """A query on a session, with its lease state, as Spark has it."""

    def __init__(self, harness, opening, reply):
        self.harness = harness
        self.reply = reply
        self.command = replace(opening, incarnation=reply.incarnation, open_and_lease=False)

    @property
    def names(self):
        """The names of the session and of its incarnation."""
        return self.command.session, self.command.incarnation

    def advance(self, start, **changes):
        """One call to `advance`."""
        self.reply = self.harness.do(replace(self.command, start_tag=start, **changes))
        return self.reply

    def attach(self, start, end, **changes):
        """One call to `attach`."""
        options = {"holder": self.command.holder, "start_tag": start, "end_tag": end, **changes}
        return self.harness.do(c.Attach(*self.names, **options))

    def pieces(self, after, last, *, epoch=None):
        """Fetches the pieces of a range of tags."""
        epoch = self.reply.epoch if epoch is None else epoch
        return views.fetch(self.harness.core.state, *self.names, epoch, after, last)

    def fetch(self, after, last):
        """The labels of the fetched rows."""
        return self.harness.read(self.pieces(after, last))

    # --- outcomes ---

    def owner(self, *, batch_id=7, run_id="run"):
        """The query and run of the reader as a lease owner, without the session's name."""
        return c.LeaseOwner("", "query", run_id, batch_id)

    def note(self, last_tag=None, *, batch_id=7, run_id="run", empty=False):
        """Notes a fetch of the reader, as the service does with each fetch."""
        last_tag = self.info().end_tag if last_tag is None else last_tag
        reader = self.reply.epoch, "query", run_id, batch_id, "label"
        self.harness.do(c.NoteFetch(*self.names, *reader, last_tag, empty=empty))

    def stage(self, name, *groups, owner=None, discard=False):
        """Stages outcomes; returns the stage's id and count, which a commit names."""
        stage_id = name.encode().ljust(16)
        command = c.StageOutcomes(stage_id, owner or self.owner(), "task", discard, groups)
        return stage_id, self.harness.do(command)

    def commit(self, *stages, owner=None):
        """Commits a settle call."""
        command = c.CommitOutcomes(owner or self.owner(), stages)
        return self.harness.do(command)

    def say(self, *groups, name="said", **options):
        """Stages and commits outcomes."""
        self.commit(self.stage(name, *groups, **options), owner=options.get("owner"))

    def detach(self):
        """S5: detaches the session, as the service does after the session timeout."""
        return self.harness.do(c.DetachSession(*self.names, self.info().epoch))

    def rows(self, after, last):
        """(tag, label, delivery count) of the fetched rows."""
        return self.harness.rows(self.pieces(after, last))

    def info(self):
        """The session as an operator sees it."""
        return views.list_sessions(self.harness.core.state, self.command.session)[0]


def reading(harness):
    """A query that reads the tags 1 to 6 of ten messages, for batch 7."""
    harness.declare("q", dead_letter_queue="dead")
    harness.declare("dead")
    harness.publish_to("q", 10)
    reader = harness.open("q")
    reader.advance(0, max_messages=6)
    reader.note()
    return reader


def group(outcome, *tags, reason="", delay_ms=0):
    """Tags with the same disposition."""
    return c.OutcomeGroup(Disposition(outcome, reason, delay_ms), BitMap64(tags))


def mixed(sizes):
    """The sizes of a block's rows as a command has them."""
    return np.array(sizes) if len(set(sizes)) > 1 else None


def routes(keys):
    """The distinct keys, and the key of each row."""
    distinct = tuple(dict.fromkeys(keys))
    if len(distinct) == 1:
        return c.Routes(distinct)
    return c.Routes(distinct, np.array([distinct.index(key) for key in keys], np.int32))


def block_rows(piece):
    """The row indices of a piece."""
    if isinstance(piece.rows, tuple):
        first, count = piece.rows
        return list(range(first, first + count))
    return [int(row) for row in piece.rows]


def labels(first, last):
    """The labels of the publishes first..last."""
    return [f"m{number}" for number in range(first, last + 1)]


def refused(error, told, call, *args, **options):
    """The error with which a call is refused; its words match `told`."""
    with pytest.raises(error, match=told) as caught:
        call(*args, **options)
    return caught.value
