"""The core against a model of plain lists: every command in any order, with restarts in between.

I2 to I4, K3, P10, C1-C7, C10, C12-C14, Q3, Q4, Q6, Q7, S13, S14; the harness compares a second core
at each step as well.
"""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pyroaring import BitMap64

from ackq.errors import BatchChangedError, StageMismatchError
from ackq.outcomes import Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.sizes import sized
from tests.unit.core.harness import PUBLISHER, Harness
from tests.unit.core.model import NO_LIMIT, Message, Model

DELAYS = {"redelivery_delay_ms": 1000, "redelivery_delay_max_ms": 1500}


def drops(length, size):
    """The bounds of a queue that drops its oldest messages; 0 is none."""
    return {"max_length": length, "max_bytes": size, "overflow": "drop-head"}


QUEUES = {
    "a": c.QueueProperties(retain_ms=4000),
    "b": c.QueueProperties(dead_letter_queue="d", delivery_limit=1, **DELAYS),
    "ttl": c.QueueProperties(message_ttl_ms=5000, dead_letter_queue="nowhere"),
    "d": c.QueueProperties(message_ttl_ms=6000, dead_letter_queue="e", **drops(5, 150)),
    "e": c.QueueProperties(message_ttl_ms=3000, dead_letter_queue="d"),
    "ring": c.QueueProperties(delivery_limit=1, drop_on_limit=True, **drops(4, 100)),
    "x": c.QueueProperties(dead_letter_queue="d", delivery_limit=2, retain_ms=6000),
    "self": c.QueueProperties(dead_letter_queue="self", **drops(3, 0)),
}
RETAINING = ("a", "x")
VOLATILE = c.QueueProperties(durable=False, dead_letter_queue="d")
CHANNELS = ("k", "l")
OTHERS = (b"2" * 16, b"3" * 16)

queues = st.sampled_from(sorted(QUEUES))
channels = st.sampled_from(CHANNELS)
keys = st.lists(st.sampled_from([*QUEUES, "nobody"]), min_size=4, max_size=12)
ttls = st.sampled_from([0, 0, 1000, 3000])
sizes = st.sampled_from([0, 1, 10, 40, 95, 300])
delays = st.sampled_from([0, 0, 2000])


class CoreMachine(RuleBasedStateMachine):
    """Two channels, a publisher, and a writer; see `SessionMachine` for sessions."""

    def __init__(self):
        super().__init__()
        self.harness = Harness()
        self.model = Model()
        for name, properties in QUEUES.items():
            self.harness.do(c.DeclareQueue(name, properties))
            self.model.declare(name, properties)
        self.published = {}
        self.stages = {}
        self.drops = 0
        self.batch_id = 0

    @property
    def now_us(self):
        return self.harness.now_us

    # --- publishing and writing ---

    @rule(keys=keys, durable=st.booleans(), data=st.data())
    def publish(self, keys, *, durable, data):
        ttls_ms = [data.draw(ttls) for _ in keys]
        of_rows = [data.draw(sizes) for _ in keys]
        first, asked_us = self.harness.number, self.now_us
        reply = self.harness.publish(keys, persistent=durable, ttls_ms=ttls_ms, sizes=of_rows)
        assert list(reply.confirmed) == list(range(first, first + len(keys)))
        rows = zip(keys, ttls_ms, of_rows, strict=True)
        for number, (key, ttl_ms, size) in enumerate(rows, first):
            if key in self.model.queues:
                self.published[number] = (key, durable)
                expires_us = asked_us + ttl_ms * 1000 if ttl_ms else NO_LIMIT
                message = Message(f"m{number}", durable, size)
                self.model.queues[key].put(message, self.now_us, expires_us)
        self.overflow(keys)

    @rule(key=queues, data=st.data())
    def publish_together(self, key, data):
        """P4: a row of each of three publishers in one block."""
        of_rows = [data.draw(sizes) for _ in range(3)]
        number = self.harness.number
        placed = self.harness.together(key, of_rows, OTHERS)
        assert placed == (key in self.model.queues)
        if placed:
            self.published[number] = (key, True)
            for row, size in enumerate(of_rows):
                label = f"m{number}.{row}" if row else f"m{number}"
                self.model.queues[key].put(Message(label, True, size), self.now_us)
            self.overflow([key])

    def overflow(self, keys):
        """Q3: queues that got messages drop those over the bound; a requeue never drops."""
        for key in keys:
            if key in self.model.queues:
                self.model.queues[key].overflow()

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def retransmit(self, data):
        """P10: a retransmission places no message."""
        numbers = sorted(data.draw(st.sets(st.sampled_from(sorted(self.published)), min_size=1)))
        reply = self.harness.publish([self.published[n][0] for n in numbers], numbers=numbers)
        assert list(reply.confirmed) == numbers
        assert reply.block_id is None

    @rule(rows=st.lists(st.tuples(st.sampled_from(["a", "ring", "ttl"]), sizes), max_size=4))
    def stage(self, rows):
        name = f"s{self.batch_id}-{self.drops}-{len(self.stages)}-"
        keys, of_rows = [key for key, _ in rows], [size for _, size in rows]
        staged = self.harness.stage("w", self.batch_id, keys, name=name, sizes=of_rows)
        self.stages[name] = (staged, rows)

    @precondition(lambda self: self.stages)
    @rule(data=st.data())
    def commit(self, data):
        """K3: commits the named stages together, the others never; a repetition writes nothing."""
        names = data.draw(st.lists(st.sampled_from(sorted(self.stages)), unique=True))
        references = [self.stages[name][0] for name in names]
        rows = sum(len(self.stages[name][1]) for name in names)
        keys = []
        reply = self.harness.commit("w", self.batch_id, *references, target="one")
        assert reply == c.CommittedBatch(rows, False, "one")
        for name in names:
            for row, (key, size) in enumerate(self.stages[name][1]):
                self.model.queues[key].put(Message(f"{name}{row}", True, size), self.now_us)
                keys.append(key)
        self.overflow(keys)
        reply = self.harness.commit("w", self.batch_id, *references, target="one")
        assert reply == c.CommittedBatch(rows, True, "one")
        for changed in {"target": "two"}, {"run_id": "next", "target": "two"}:
            with pytest.raises(BatchChangedError):
                self.harness.commit("w", self.batch_id, *references, **changed)
        self.stages.clear()
        self.batch_id += 1

    @precondition(lambda self: self.stages)
    @rule()
    def drop_batch(self):
        """K3: an operator drops a batch; a commit that names one of its stages is refused."""
        dropped = self.harness.do(c.DropBatch(c.BatchKey("w", self.batch_id)))
        assert dropped.stages == len(self.stages)
        for reference, _ in self.stages.values():
            with pytest.raises(StageMismatchError):
                self.harness.commit("w", self.batch_id, reference)
        self.stages.clear()
        self.drops += 1

    # --- channels ---

    @rule(name=channels, count=st.integers(1, 6), data=st.data())
    def deliver(self, name, count, data):
        """C1, C7, Q3: delivers messages of a queue to a channel."""
        self.give(name, count, data, no_ack=False)

    @rule(name=channels, count=st.integers(1, 2), data=st.data())
    def deliver_without_acks(self, name, count, data):
        """C10: delivers messages that are accepted at once."""
        self.give(name, count, data, no_ack=True)

    def give(self, name, count, data, *, no_ack):
        filled = [name for name, queue in self.model.queues.items() if queue.messages]
        self.take(name, data.draw(st.sampled_from(filled or sorted(QUEUES))), count, no_ack=no_ack)

    def take(self, name, queue, count, *, no_ack=False):
        rows = self.harness.deliver(name, queue, count, no_ack=no_ack)
        found = self.model.queues[queue]
        assert rows == self.model.deliver(name, found, count, self.now_us, no_ack=no_ack)
        return [tag for tag, _, _ in rows]

    @rule(queue=st.sampled_from(["b", "ring", "x"]), times=st.integers(1, 4))
    def fail_again(self, queue, times):
        """C13, C14: fails the same messages, until they are over the delivery limit."""
        for _ in range(times):
            tags = self.take("k", queue, 2)
            if tags:
                self.end("k", Outcome.FAILED, tags)
            self.wait(1.6)

    @precondition(lambda self: self.holding())
    @rule(data=st.data(), multiple=st.booleans())
    def accept(self, data, *, multiple):
        """C3, C4: accepts outstanding tags."""
        self.settle(data, Outcome.ACCEPTED, multiple=multiple)

    @precondition(lambda self: self.holding())
    @rule(data=st.data(), multiple=st.booleans(), reason=st.sampled_from(["", "bad", "worse"]))
    def reject(self, data, reason, *, multiple):
        """C3, C4, C13: rejects outstanding tags."""
        self.settle(data, Outcome.REJECTED, multiple=multiple, reason=reason)

    @precondition(lambda self: self.holding())
    @rule(data=st.data(), multiple=st.booleans(), reason=st.sampled_from(["", "bad"]), delay=delays)
    def fail(self, data, reason, delay, *, multiple):
        """C3, C4, C13, C14: fails outstanding tags."""
        self.settle(data, Outcome.FAILED, multiple=multiple, reason=reason, delay_ms=delay)

    @precondition(lambda self: self.holding())
    @rule(data=st.data(), multiple=st.booleans(), delay=delays)
    def requeue(self, data, delay, *, multiple):
        """C3, C4, C6, C14: releases outstanding tags."""
        self.settle(data, Outcome.RELEASED, multiple=multiple, delay_ms=delay)

    def holding(self):
        return any(channel.held for channel in self.model.channels.values())

    def settle(self, data, outcome, *, multiple, **said):
        held = {name: sorted(found.held) for name, found in self.model.channels.items()}
        name = data.draw(st.sampled_from([name for name in held if held[name]]))
        tags = data.draw(st.sets(st.sampled_from(held[name]), min_size=1))
        if multiple:
            tags = {tag for tag in held[name] if tag <= max(tags)}
        self.end(name, outcome, sorted(tags), up_to=max(tags) if multiple else 0, **said)

    def end(self, name, outcome, tags, *, up_to=0, reason="", delay_ms=0):
        options = {"up_to": up_to, "reason": reason, "delay_ms": delay_ms}
        reply = self.harness.settle(name, outcome, *(() if up_to else tags), **options)
        assert reply == self.model.settle(name, outcome, tags, reason, delay_ms, self.now_us)

    def close(self, data):
        """C12: closes a channel."""
        name = data.draw(channels)
        assert self.harness.do(c.CloseChannel(name.encode())) == self.model.close(name)

    # --- dead letters and time ---

    @rule(seconds=st.sampled_from([0, 0.5, 1.02, 3.1, 7]))
    def wait(self, seconds):
        """C13, C14, Q3: moves the clock on and ticks."""
        assert self.harness.wait(seconds) == self.model.tick(self.now_us)

    @rule(seconds=st.sampled_from([0.5, 1.02]))
    def pass_by(self, seconds):
        """Q3: moves the clock on without a tick."""
        self.harness.now_us += int(seconds * 1_000_000)

    @precondition(lambda self: self.dead_letters())
    @rule(data=st.data(), count=st.integers(0, 3))
    def redrive(self, data, count):
        """Q6: redrives dead letters of a queue."""
        name = data.draw(st.sampled_from(self.dead_letters()))
        reply = self.harness.do(c.Redrive(name, max_messages=count))
        assert reply == self.model.redrive(self.model.queues[name], count, self.now_us)

    def dead_letters(self):
        return [n for n, q in self.model.queues.items() if any(m.origin for m in q.messages)]

    # --- retention ---

    @rule(name=st.sampled_from(RETAINING), back_ms=st.sampled_from([0, 1500, 3000]))
    def rewind(self, name, back_ms):
        """S14: makes ready what channels accepted, all of it or the latest."""
        from_us = self.now_us - back_ms * 1000 if back_ms else 0
        state = self.harness.core.state
        if from_us < state.queues[state.queue_ids[name]].retained.from_us:
            from_us = 0
        found = self.harness.do(c.RewindQueue(name, from_us))
        assert found.messages == self.model.queues[name].rewind(from_us)

    @rule()
    def housekeep(self):
        """S13: ends the retention that is over."""
        self.harness.do(c.Housekeep())
        for queue in self.model.queues.values():
            queue.retained = [each for each in queue.retained if each[0] > self.now_us]

    # --- operating ---

    @rule(data=st.data())
    def operate(self, data):
        """Does an act that would end most runs early if it were as likely as the others."""
        acts = (self.close, self.purge, self.delete, self.restart, self.outlive)
        data.draw(st.sampled_from(acts))(data)

    def purge(self, data):
        """Q4, S7: purges the ready messages of a queue; returns its name."""
        name = data.draw(queues)
        gone = self.model.queues[name].ready()
        assert self.harness.do(c.PurgeQueue(name)) == len(gone)
        self.model.queues[name].remove(gone)
        self.model.queues[name].retained = []
        return name

    def delete(self, _data):
        """Q1, Q4: unacked messages stay with their channel; the name is another queue's."""
        self.take("l", "x", 2)
        assert self.harness.do(c.DeleteQueue("x", force=True)) == self.model.delete("x")
        self.model._forget()
        self.harness.do(c.DeclareQueue("x", QUEUES["x"]))
        self.model.declare("x", QUEUES["x"])

    def outlive(self, data):
        """C13, P12, Q7: a dead letter outlives its non-durable queue."""
        self.harness.do(c.DeclareQueue("volatile", VOLATILE))
        self.model.declare("volatile", VOLATILE)
        durable = data.draw(st.booleans())
        for _ in self.harness.publish(["volatile"] * 2, persistent=durable).confirmed:
            number = self.harness.number - 2 + len(self.model.queues["volatile"].messages)
            self.model.queues["volatile"].put(Message(f"m{number}", durable), self.now_us)
        self.end("k", Outcome.REJECTED, self.take("k", "volatile", 1))
        self.restart(data)

    def restart(self, _data):
        """Q7: only transient messages and non-durable queues are lost."""
        assert self.harness.restart() == self.model.restart()
        self.published = {n: p for n, p in self.published.items() if p[1]}
        self.harness.do(c.OpenPublisher(PUBLISHER, resume=True))

    @rule()
    def restore(self):
        """I2: a snapshot in the middle changes nothing."""
        self.harness.core = Core.restore(self.harness.core.snapshot())

    # --- invariants ---

    @invariant()
    def queues_are_as_in_the_model(self):
        """I4: every message is where the model has it, with the same fields, and nowhere else."""
        infos = {info.queue: info for info in views.list_queues(self.harness.core.state)}
        assert set(infos) == set(self.model.queues)
        for name, queue in self.model.queues.items():
            info = infos[name]
            assert self.browse(name) == [each.shown() for each in queue.messages]
            assert info.ready == len(queue.ready())
            assert info.delayed == sum(bool(m.until_us) for m in queue.messages)
            assert info.unacked == sum(bool(m.owner) for m in queue.messages)
            assert info.payload_bytes == sum(m.size for m in queue.messages)
            assert info.queue_id == queue.queue_id
            assert info.retained == len(queue.retained)
            assert info.retained_payload_bytes == sum(m.size for _, m in queue.retained)
            for count in ("accepted", "expired", "dead_lettered", "dropped"):
                assert getattr(info, count) == getattr(queue, count), count

    def browse(self, name):
        """Position, label, delivery count, leased and origin of each message."""
        found = []
        for piece in views.browse(self.harness.core.state, name):
            leased = [run.leased for run in piece.runs for _ in range(run.rows)]
            origin = piece.origin
            for index, row in enumerate(self.harness.rows([piece])):
                headers = origin and (
                    *(origin.queue, origin.positions[index], origin.delivery_counts[index]),
                    *(origin.reason, origin.first_queue, origin.times),
                )
                found.append((*row, leased[index], headers))
        return found

    @invariant()
    def channels_hold_what_the_model_does(self):
        """C1, C12: the outstanding tags are the model's."""
        for name in CHANNELS:
            held = self.model.channels[name].held if name in self.model.channels else {}
            assert list(views.outstanding(self.harness.core.state, name.encode())) == sorted(held)

    @invariant()
    def time_is_waited_for(self):
        """Q3, C14: the next deadline is the model's."""
        assert views.next_due_us(self.harness.core.state) == self.model.next_due_us()

    def needed(self):
        """The labels of the messages that are still in a queue."""
        kept = {m.label for queue in self.model.every() for _, m in queue.retained}
        return kept | {m.label for queue in self.model.every() for m in queue.messages}

    @invariant()
    def live_blocks_are_those_with_messages(self):
        """I4: a block lives exactly as long as a queue or a stage needs it."""
        needed = self.needed()
        needed |= {f"{name}0" for name, (_, rows) in self.stages.items() if rows}
        blocks = {block for (block, _), label in self.harness.labels.items() if label in needed}
        core = self.harness.core
        assert set(views.live_blocks(core.state)) == blocks
        # And compaction leaves out the rows that no message needs, and no others.
        needed -= {f"{name}0" for name in self.stages}
        rows = {key for key, label in self.harness.labels.items() if label in needed}
        found = views.live_rows(core.state, views.live_blocks(core.state))
        assert {(block, row) for block, kept in found.items() for row in kept} == rows
        # A block that is also in a queue which was not named is left out.
        for load in views.block_loads(core.state):
            for block, queue in zip(load[0].tolist(), load[4].tolist(), strict=True):
                alone = views.live_rows(core.state, BitMap64((block,)), (queue,))
                assert alone.get(block, found.get(block)) == found.get(block)


# 6 s of one core when it is alone, minutes on a machine that does ten other things.
TestCore = pytest.mark.timeout(600)(CoreMachine.TestCase)
TestCore.settings = settings(
    max_examples=sized(12, 60),
    stateful_step_count=50,
    # A failing run is printed whole, with the blob that repeats it. Shrinking it takes minutes,
    # more than a test may: remove this line to shrink.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
)
