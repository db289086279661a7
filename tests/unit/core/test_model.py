"""The core against a model of plain lists: publishes, leases, stages, restarts in any order.

I2 to I4, S1, S2, S4, S5, S7, K3, P10, Q7; the harness compares a second core at each step as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackq_broker.core import Core
from ackq_broker.core import commands as c
from tests.unit.core.harness import PUBLISHER, Harness, Reader

QUEUES = ("a", "b")
SESSIONS = {"one": ("a",), "two": ("a", "b")}


@dataclass
class Message:
    """A message of the model, in its place in the queue."""

    label: str
    persistent: bool
    owner: str = ""
    deliveries: int = 0


@dataclass
class Batch:
    """A session of the model: what it holds and held last, and the rows as first read."""

    reader: Reader
    floor: int = 0
    lease: list[tuple[str, Message]] = field(default_factory=list)
    kept: list[tuple[str, Message]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.floor + len(self.lease)


class CoreMachine(RuleBasedStateMachine):
    """Sessions `one` (on a) and `two` (on a and b), a publisher, and a writer."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.harness.declare(*QUEUES)
        self.queues: dict[str, list[Message]] = {name: [] for name in QUEUES}
        self.sessions: dict[str, Batch] = {}
        self.published: dict[int, tuple[str, bool]] = {}
        self.stages: dict[str, tuple[c.StageRef, list[str]]] = {}
        self.batch_id = 0

    # --- publishing and writing ---

    @rule(keys=st.lists(st.sampled_from([*QUEUES, "nowhere"]), min_size=1), durable=st.booleans())
    def publish(self, keys: list[str], *, durable: bool) -> None:
        first = self.harness.number
        reply = self.harness.publish(keys, persistent=durable)
        assert list(reply.confirmed) == list(range(first, first + len(keys)))
        for number, key in enumerate(keys, first):
            if key in self.queues:
                self.published[number] = (key, durable)
                self.queues[key].append(Message(f"m{number}", durable))

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def retransmit(self, data: st.DataObject) -> None:
        """P10: nothing is placed again."""
        numbers = sorted(data.draw(st.sets(st.sampled_from(sorted(self.published)), min_size=1)))
        reply = self.harness.publish([self.published[n][0] for n in numbers], numbers=numbers)
        assert list(reply.confirmed) == numbers
        assert reply.block_id is None

    @rule(keys=st.lists(st.sampled_from(QUEUES), max_size=4))
    def stage(self, keys: list[str]) -> None:
        name = f"s{self.batch_id}-{len(self.stages)}-"
        self.stages[name] = (self.harness.stage("w", self.batch_id, keys, name=name), keys)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """K3: the named stages together, the others never; and once more for nothing."""
        names = (
            data.draw(st.lists(st.sampled_from(sorted(self.stages)), unique=True))
            if (self.stages)
            else []
        )
        references = [self.stages[name][0] for name in names]
        rows = sum(len(self.stages[name][1]) for name in names)
        for repeated in (False, True):
            reply = self.harness.commit("w", self.batch_id, *references)
            assert reply == c.CommittedBatch(rows, repeated)
        for name in names:
            for row, key in enumerate(self.stages[name][1]):
                self.queues[key].append(Message(f"{name}{row}", True))
        self.stages.clear()
        self.batch_id += 1

    # --- reading ---

    @rule(name=st.sampled_from(sorted(SESSIONS)))
    def open(self, name: str) -> None:
        if name not in self.sessions:
            self.sessions[name] = Batch(self.harness.open(*SESSIONS[name], session=name))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), limit=st.integers(1, 9), newcomer=st.booleans())
    def advance(self, data: st.DataObject, limit: int, *, newcomer: bool) -> None:
        """S4: accepts the whole lease and leases the lowest ready positions."""
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        session = self.sessions[name]
        if newcomer:
            token = self.harness.now_us.to_bytes(16, "little")
            session.reader.command = replace(session.reader.command, holder=c.HolderInfo(token))
        if session.lease:
            session.kept = session.lease
        floor = session.end
        for queue in self.queues:
            self.queues[queue] = [m for m in self.queues[queue] if m.owner != name]
        ready = {queue: [m for m in self.queues[queue] if not m.owner] for queue in SESSIONS[name]}
        reply = session.reader.advance(floor, max_messages=limit)
        session.floor = floor
        assert reply.end_tag - floor == min(limit, sum(map(len, ready.values())))
        session.lease = []
        for piece in session.reader.pieces(floor, reply.end_tag):
            for label in self.harness.read([piece]):
                message = ready[piece.queue].pop(0)
                assert message.label == label
                message.owner = name
                session.lease.append((piece.queue, message))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), kept=st.booleans())
    def replay(self, data: st.DataObject, *, kept: bool) -> None:
        """S1, S2, K2: the same tags give the same rows and counts; what vanished is left out."""
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        session = self.sessions[name]
        lease = session.kept if kept else session.lease
        floor = session.floor - len(lease) if kept else session.floor
        end = floor + len(lease)
        session.reader.attach(floor, end)
        after = data.draw(st.integers(floor, end))
        last = data.draw(st.integers(after, end))
        found = []
        for piece in session.reader.pieces(after, last):
            tags = [
                (run.first_tag + row, run.delivery_count)
                for run in piece.runs
                for row in range(run.rows)
            ]
            found += zip(tags, self.harness.read([piece]), strict=True)
        assert found == [
            ((tag, message.deliveries + 1), message.label)
            for tag, (_, message) in enumerate(lease, floor + 1)
            if after < tag <= last and message.owner
        ]

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """S5: back to the old places, one delivery older."""
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        lease = [m for _, m in self.sessions.pop(name).lease if m.owner]
        assert self.harness.do(c.ReleaseSession(name)) == len(lease)
        for message in lease:
            message.owner = ""
            message.deliveries += 1

    # --- operating ---

    @rule(name=st.sampled_from(QUEUES))
    def purge(self, name: str) -> None:
        """S7: only what is ready."""
        gone = [m for m in self.queues[name] if not m.owner]
        assert self.harness.do(c.PurgeQueue(name)) == len(gone)
        self.queues[name] = [m for m in self.queues[name] if m.owner]

    @rule()
    def restart(self) -> None:
        """Q7: transient messages go, wherever they are; nothing else does."""
        gone = [m for queue in self.queues.values() for m in queue if not m.persistent]
        assert self.harness.restart() == len(gone)
        kept = [m for s in self.sessions.values() for _, m in s.kept if not m.persistent]
        for message in gone + kept:
            message.owner = ""
        for name in QUEUES:
            self.queues[name] = [m for m in self.queues[name] if m.persistent]
        self.published = {n: p for n, p in self.published.items() if p[1]}
        self.harness.do(c.OpenPublisher(PUBLISHER, resume=True))

    @rule()
    def restore(self) -> None:
        """I2: a snapshot in the middle changes nothing."""
        self.harness.core = Core.restore(self.harness.core.snapshot())

    @invariant()
    def queues_are_as_in_the_model(self) -> None:
        """I4: every message is where the model has it, and nowhere else."""
        for name, messages in self.queues.items():
            assert self.harness.browse(name) == [m.label for m in messages]
            assert self.harness.unacked(name) == sum(bool(m.owner) for m in messages)

    @invariant()
    def live_blocks_are_those_with_messages(self) -> None:
        """I4: a block lives exactly as long as a queue or a stage needs it."""
        needed = {m.label for queue in self.queues.values() for m in queue}
        needed |= {m.label for s in self.sessions.values() for _, m in s.kept if m.owner}
        needed |= {f"{name}0" for name, (_, keys) in self.stages.items() if keys}
        blocks = {block for (block, _), label in self.harness.labels.items() if label in needed}
        assert set(self.harness.core.live_blocks()) == blocks


TestCore = CoreMachine.TestCase
TestCore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
