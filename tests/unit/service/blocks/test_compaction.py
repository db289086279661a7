"""Compaction changes nothing that a reader can see, whatever commands run in between."""

import asyncio
import random
from functools import partial
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64

from ackq.errors import CheckpointMismatchError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.engine import recovery
from ackq_broker.journal import Journal, dump
from ackq_broker.journal.failpoints import unarmed
from ackq_broker.journal.write import transient
from ackq_broker.service.blocks import compaction
from ackq_broker.service.blocks.compaction import Compaction
from ackq_broker.service.blocks.frames import FrameBuilder
from tests.fakes.blocks import rows
from tests.fakes.disk import Image, RecordingDisk
from tests.sizes import sized
from tests.unit.core.harness import block_rows
from tests.unit.service.channel_streams import PUBLISHER, publish

HOLDER = c.HolderInfo(b"h" * 16, "host", 1, "app")
QUEUES = {
    "a": c.QueueProperties(dead_letter_queue="dead"),
    "b": c.QueueProperties(),
    "dead": c.QueueProperties(),
    "leased": c.QueueProperties(),
    "short": c.QueueProperties(durable=False, dead_letter_queue="dead"),
}
SEGMENT_BYTES = 16 * 1024
IMAGES_PER_POINT = 2


class Broker:
    """An engine on a data directory, and the body of each published row.

    `bodies` outlives it: pass it to the next broker on the directory.
    """

    def __init__(self, monkeypatch, directory, *, disk=None, bodies=None):
        opening = partial(Journal.open, disk=disk)
        monkeypatch.setattr(recovery, "Journal", SimpleNamespace(open=opening))
        self._recovered = recovery.recover(
            directory, sync=False, failpoint=unarmed, segment_bytes=SEGMENT_BYTES
        )
        self.engine = self._recovered.engine
        self.compaction = Compaction(self.engine)
        self.bodies = {} if bodies is None else bodies
        self.number = 0
        self.transient = set()

    async def __aenter__(self):
        await recovery.wait_synced(self._recovered)
        return self

    async def __aexit__(self, *_):
        await self.engine.close()

    def do(self, command, block=()):
        return self.engine.decide(command, block).reply

    def open(self):
        """Declares the queues, exchange and bindings of this file."""
        for name, properties in QUEUES.items():
            self.do(c.DeclareQueue(name, properties))
        self.do(c.DeclareExchange("all", "fanout"))
        for name in ("a", "b"):
            self.do(c.Bind("all", name, ""))

    def publish(self, keys, *, exchange="", size=200, persistent=True):
        """Publishes a frame with one row per key; all bodies differ."""
        self.do(c.OpenPublisher(PUBLISHER, resume=self.number > 0))
        made = [b"%d." % (self.number + at) + bytes(size) for at in range(len(keys))]
        fields = {"keys": keys, "exchange": exchange, "persistent": persistent}
        reply = publish(self.engine, self.number + 1, *made, **fields).reply
        self.number += len(keys)
        self.transient |= set() if persistent else set(made)
        self.bodies.update({(reply.block_id, row): body for row, body in enumerate(made)})

    async def fill(self, frames, *queues, **options):
        """Publishes `frames` frames of 20 messages to each queue in turn, each with a sync."""
        for _ in range(frames):
            for queue in queues:
                self.publish([queue] * 20, **options)
                await self.engine.wait_synced()

    async def compact(self):
        """Runs one compaction step, after the journal has processed the freed blocks."""
        await self.engine.run(partial(self.engine.journal.rewrite_blocks, []))
        await self.compaction.step()

    def given(self, pieces):
        """The bodies that the core means by pieces."""
        return [self.bodies[piece.block_id, row] for piece in pieces for row in block_rows(piece)]

    def read(self, pieces, *, settled_ok=False, cache=False):
        """The bodies that a reader of pieces gets."""
        source = self.engine.block_cache if cache else self.engine.journal.read_block
        builder = FrameBuilder(pieces, source, settled_ok=settled_ok)
        return [body for f in iter(builder.next_frame, None) for body in rows(f.block)["body"]]

    def content(self):
        """The bodies of every queue, as its readers get them."""
        found = {name: [] for name in QUEUES}
        for name in (info.queue for info in views.list_queues(self.engine.core.state)):
            pieces = views.browse(self.engine.core.state, name)
            found[name] = self.read(pieces)
            assert found[name] == self.given(pieces)
        return found

    def take(self, queue, count, **options):
        return self.do(c.Deliver(b"c" * 16, queue, count, **options))

    def accept_most(self, queue, kept_one_in):
        """Accepts the messages of a queue except every `kept_one_in`th, which is released."""
        delivery = self.take(queue, 10_000)
        tags = BitMap64(range(delivery.first_tag, delivery.first_tag + delivery.messages))
        rest = BitMap64(list(tags)[::kept_one_in])
        self.do(c.Settle(b"c" * 16, Outcome.ACCEPTED, tags - rest))
        self.do(c.Settle(b"c" * 16, Outcome.RELEASED, rest))


async def test_a_sparse_rest_of_transient_messages(monkeypatch, tmp_path):
    """I6, P5: remaining transient messages are compacted, and the files they filled deleted."""
    monkeypatch.setattr(transient, "_FILE_BYTES", SEGMENT_BYTES)
    async with Broker(monkeypatch, tmp_path / "data") as broker:
        broker.open()
        await broker.fill(40, "b", persistent=False)
        broker.accept_most("b", 10)
        await broker.engine.run(partial(broker.engine.journal._transient.rewrite, []))
        before, content = len(list((tmp_path / "data").glob("transient-*"))), broker.content()
        await broker.compact()
        assert broker.content() == content
        assert len(content["b"]) == 80
        after = sum(p.stat().st_size for p in (tmp_path / "data").glob("transient-*"))
        assert after < 80 * 200 * 2.5 + SEGMENT_BYTES < before * SEGMENT_BYTES
        broker.do(c.PurgeQueue("b"))
        assert len(list((tmp_path / "data").glob("transient-*"))) == 1


async def test_what_is_looked_at(monkeypatch, tmp_path):
    """I6: an idle broker does not inspect again blocks that only look sparse (tiny bodies).

    A busy broker skips blocks that may be whole; checking took 120 ms with 10,000 queues.
    """
    # The number of queues of each look at the rows of blocks.
    looked, live_rows = [], views.live_rows

    def look(state, ids, queues):
        looked.append(len(queues))
        return live_rows(state, ids, queues)

    monkeypatch.setattr(views, "live_rows", look)
    async with Broker(monkeypatch, tmp_path / "data") as broker:
        broker.open()
        for _ in range(4):
            broker.publish(["b"] * 2000, size=0)
        await broker.compact()
        assert looked
        looked.clear()
        broker.publish(["b"])
        await broker.compact()
        assert not looked
        names = [f"q{number}" for number in range(10)]
        for name in names:
            broker.do(c.DeclareQueue(name, c.QueueProperties(durable=True)))
        for _ in range(4):
            broker.publish(names * 4, size=500)
        with monkeypatch.context() as busy:
            busy.setattr(compaction, "_QUIET_BYTES", -1)
            await broker.compact()
        assert not looked
        await broker.compact()
        assert looked == [10]


async def test_a_busy_broker_is_spared(monkeypatch, tmp_path):
    """I6: above a small rate of published or freed bytes a step reads a bounded number of bytes,
    and only of nearly empty blocks.
    """
    async with Broker(monkeypatch, tmp_path / "data") as broker:
        broker.open()
        await broker.fill(40, "b")
        broker.accept_most("b", 10)
        monkeypatch.setattr(compaction, "_QUIET_BYTES", 1)
        monkeypatch.setattr(compaction, "_BUSY_BYTES", 10_000)
        monkeypatch.setattr(compaction, "_BATCH_BYTES", 4096)
        await broker.compact()
        copied = sum("relocation" in line for line in dump(tmp_path / "data"))
        assert 0 < copied < 5


class Life:
    """Random commands with compactions in between, checking every read."""

    def __init__(self, broker, chance):
        self.broker, self.chance = broker, chance
        self.outstanding = BitMap64()
        self.pinned, self.browsing = [], []
        self.reader, self.end = None, 0

    async def act(self):
        acts = (self.publish, self.deliver, self.settle, self.no_ack, self.lease, self.browse)
        more = (self.publish, self.settle, self.compact, self.compact, self.purge, self.redrive)
        await self.chance.choice((*acts, *more))()
        self.broker.content()

    async def publish(self):
        keys = [self.chance.choice(("a", "b", "leased", "short")) for _ in range(20)]
        exchange, persistent = self.chance.choice(("", "", "all")), self.chance.random() < 0.8
        self.broker.publish(keys, exchange=exchange, persistent=persistent)

    async def deliver(self):
        queue, count = self.chance.choice(("a", "b", "short")), self.chance.randint(1, 30)
        delivery = self.broker.take(queue, count)
        self.outstanding |= BitMap64(
            range(delivery.first_tag, delivery.first_tag + delivery.messages)
        )
        expected = self.broker.given(delivery.pieces)
        assert self.broker.read(delivery.pieces, cache=self.chance.random() < 0.5) == expected

    async def settle(self):
        if not self.outstanding:
            return
        count = self.chance.randint(1, len(self.outstanding))
        tags = BitMap64(self.chance.sample(list(self.outstanding), count))
        outcome = self.chance.choice((Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.REJECTED))
        self.broker.do(c.Settle(b"c" * 16, outcome, tags))
        self.outstanding -= tags

    async def no_ack(self):
        """Delivers without acks, and reads the block later, once."""
        delivery = self.broker.take("b", self.chance.randint(1, 10), no_ack=True)
        self.pinned.append((delivery.pieces, self.broker.given(delivery.pieces)))
        if self.chance.random() < 0.5:
            pieces, expected = self.pinned.pop(0)
            assert self.broker.read(pieces) == expected
            self.broker.engine.core.unpin(pieces)

    async def lease(self):
        """Accepts the lease, which stays readable, and takes the next one."""
        broker = self.broker
        if self.reader is None:
            opening = c.Advance("s", "", HOLDER, ("leased",), 0, new_incarnation="1" * 32)
            self.reader = broker.do(opening).incarnation
        start, command = self.end, partial(c.Advance, "s", self.reader, HOLDER, ("leased",))
        reply = broker.do(command(start, max_messages=15))
        self.end = reply.end_tag
        for after, last in ((start, self.end), (max(0, start - 5), start)):
            try:
                pieces = views.fetch(
                    broker.engine.core.state, "s", self.reader, reply.epoch, after, last
                )
            except CheckpointMismatchError:
                continue
            assert broker.read(pieces) == broker.given(pieces)

    async def browse(self):
        """Begins a browse and reads it later: in order, leaving out no message still present."""
        name = self.chance.choice(("a", "b"))
        self.browsing.append((name, views.browse(self.broker.engine.core.state, name)))
        if self.chance.random() < 0.5:
            name, pieces = self.browsing.pop(0)
            found, meant = self.broker.read(pieces, settled_ok=True), self.broker.given(pieces)
            assert [body for body in meant if body in set(found)] == found
            assert set(meant) & set(self.broker.content()[name]) <= set(found)

    async def purge(self):
        if self.chance.random() < 0.2:
            self.broker.do(c.PurgeQueue(self.chance.choice(("a", "b"))))

    async def redrive(self):
        if views.list_queues(self.broker.engine.core.state, "dead")[0].ready:
            self.broker.do(c.Redrive("dead", max_messages=self.chance.randint(1, 20)))

    async def compact(self):
        before = self.broker.content()
        await self.broker.compact()
        assert self.broker.content() == before


@pytest.mark.parametrize("seed", range(sized(2, 6)))
async def test_nothing_is_delivered_otherwise(monkeypatch, tmp_path, seed):
    """C1, C10, C13, P5, S1, S2, K2, Q5-Q7: every reader gets the rows that the core means, with
    compactions at any time, over restarts.
    """
    chance = random.Random(seed)
    monkeypatch.setattr(transient, "_FILE_BYTES", SEGMENT_BYTES)
    bodies, number, relocated, content = {}, 0, 0, {name: [] for name in QUEUES}
    for _ in range(3):
        async with Broker(monkeypatch, tmp_path / "data", bodies=bodies) as broker:
            broker.number = number
            broker.open()
            assert broker.content() == content
            running = Life(broker, chance)
            for _ in range(60):
                await running.act()
            broker.do(c.CloseChannel(b"c" * 16))
            if running.reader is not None:
                broker.do(c.ReleaseSession("s", fence=True))
            content, number = broker.content(), broker.number
            for name, kept in content.items():
                content[name] = [body for body in kept if body not in broker.transient]
            content["short"] = []
        core = broker.engine.core
        table = broker.engine.journal._blocks.copy_table()
        assert set(views.durable_blocks(core.state)) <= set(table.ids().tolist())
        relocated += sum("relocation" in line for line in dump(tmp_path / "data"))
    assert relocated


async def compacting(monkeypatch, directory, disk):
    """Runs a broker that compacts everything twice; returns the queues' content after each step."""
    async with Broker(monkeypatch, directory, disk=disk) as broker:
        broker.open()
        states = []

        async def note():
            await broker.engine.wait_synced()
            states.append(broker.content())
            disk.note("state", len(states) - 1)

        for at in range(8):
            broker.publish(["a", "b"] * 10, exchange="all" if at % 3 else "")
            await broker.engine.wait_synced()
        await note()
        broker.do(c.PurgeQueue("a"))
        await note()
        broker.accept_most("b", 9)
        await note()
        await broker.compact()
        broker.publish(["a", "b"] * 10)
        await note()
        broker.accept_most("b", 15)
        await note()
        await broker.compact()
        await note()
    return broker.bodies, states


def test_a_power_cut_at_every_point(monkeypatch, tmp_path):
    """Q7, I4: at whatever instant of a compaction the power fails, every remaining message is
    delivered, and no settled one.
    """
    disk = RecordingDisk()
    bodies, states = asyncio.run(compacting(monkeypatch, tmp_path / "life", disk))
    dumped = "\n".join(dump(tmp_path / "life"))
    unlinked = [change for change in disk.changes if change[0] == "unlink"]
    assert "relocation" in dumped
    assert unlinked

    async def check(directory, last):
        async with Broker(monkeypatch, directory, bodies=bodies) as broker:
            if last < 0:
                return
            # A settlement made after the last note may have taken effect.
            assert broker.content() in states[last:]

    image = Image()
    for step, change in enumerate(disk.changes):
        image.apply(change)
        last = image.notes[-1][1] if image.notes else -1
        for attempt in range(IMAGES_PER_POINT):
            directory = tmp_path / f"{step}-{attempt}"
            directory.mkdir()
            left = image.after_power_cut(random.Random(1000 * step + attempt))
            for name, content in left.items():
                (directory / name).write_bytes(content)
            asyncio.run(check(directory, last))
