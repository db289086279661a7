"""Random deliveries, cuts and settlements: the core does what a list of entries does."""

import random

import numpy as np
import pytest
from pyroaring import BitMap

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import SECOND_US, Harness
from tests.unit.core.link_oracle import Oracle
from tests.unit.core.link_process import LinkProcess, accept, check, expanded, key, settle


class Both:
    """A link and its oracle, which get the same calls."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.harness = Harness()
        self.harness.declare("dead")
        self.harness.declare("q", dead_letter_queue="dead")
        stored, drop = self.random.random() < 0.3, self.random.random() < 0.3
        there = not stored and self.random.random() < 0.7
        ack = c.LinkAck.STORED if stored else c.LinkAck.SETTLED
        self.process = LinkProcess(self.harness, ack=ack, drop_ambiguous=drop, reject_there=there)
        self.oracle = Oracle(stored, drop, there)
        self.dead = 0
        self.cut()

    @property
    def queue(self):
        core = self.harness.core
        return core._state.queues[views.queue_ids(core.state)["q"]]

    @property
    def present(self):
        return set(self.queue.present)

    def cut(self):
        self.process.subscribe()
        self.oracle.subscribe(self.harness.now_us, self.queue.next_position)

    def deliver(self):
        rows = []
        for _ in range(self.random.randint(1, 7)):
            name = self.random.choice(["", "a", "b", "c", f"n{self.random.randint(0, 30)}"])
            body = name if self.random.random() < 0.8 else "other"
            rows.append((name, body, self.random.random() < 0.4, self.random.random() < 0.6))
        present, position = self.present, self.queue.next_position
        reply = self.process.store(
            [body for _, body, *_ in rows],
            keys=np.array([key(name) for name, *_ in rows], np.uint64),
            checks=np.array([check(body) for _, body, *_ in rows], np.uint64),
            content=BitMap(n for n, row in enumerate(rows) if row[2]),
            redelivered=BitMap(n for n, row in enumerate(rows) if row[3]),
        )
        clock = self.process.proven, self.harness.now_us
        expected = self.oracle.deliver(rows, present, position, *clock)
        rejected = [run.rejected for run in reply.runs for _ in range(run.rows)]
        told = [(*row[1:], no) for row, no in zip(expanded(reply), rejected, strict=True)]
        assert told == expected
        self.oracle.forget(self.harness.now_us, self.present)

    def settle(self):
        ready = list(self.queue.ready)
        if ready:
            accept(self.harness, *self.random.sample(ready, self.random.randint(1, len(ready))))

    def reject(self):
        ready = list(self.queue.ready)
        if ready:
            chosen = self.random.sample(ready, self.random.randint(1, len(ready)))
            settle(self.harness, Outcome.REJECTED, *chosen)
            self.dead += len(chosen) - self.oracle.reject(chosen)

    def permit(self):
        unproven = (
            sum(len(batch) for _, batch in self.oracle.batches)
            + self.oracle.proved
            - self.process.proven
        )
        self.process.proven += self.random.randint(0, unproven)
        told, rejected = self.process.outcomes()
        self.oracle.prove(self.process.proven, self.harness.now_us)
        assert told == self.oracle.settle(self.present, self.harness.now_us)
        assert rejected == {each for each in told if self.oracle.entries[each].rejected}
        self.oracle.forget(self.harness.now_us, self.present)

    def wait(self):
        self.harness.now_us += self.random.choice([1, 30, 70, 4_000, 90_000]) * SECOND_US

    def restart(self):
        self.harness.restart()

    def compare(self):
        entries = self.oracle.entries.values()
        link, info = self.process.state(), self.process.info()
        assert list(link.entries.positions) == [e.position for e in entries]
        assert list(link.bound) == [e.position for e in entries if e.bound]
        assert list(link.rejected) == [e.position for e in entries if e.rejected]
        assert self.harness.ready("dead") == self.dead
        assert info.unproven == sum(e.permit in ("sent", "doubt") for e in entries)
        assert info.in_doubt == sum(e.permit == "doubt" for e in entries)
        assert (info.ambiguous, info.id_reused) == (self.oracle.ambiguous, self.oracle.reused)
        assert info.tombstones == sum(e.position not in self.present for e in entries)


@pytest.mark.parametrize("seed", range(12))
def test_chance(seed):
    """L4-L7, L9-L11, L17, L28: deliveries, outcomes, permits, proofs, cuts, days and restarts."""
    both = Both(seed)
    steps = [both.deliver] * 5 + [both.settle, both.reject] + [both.permit] * 3
    steps += [both.wait, both.cut]
    for _ in range(60):
        both.random.choice(steps)()
        both.compare()
    both.restart()
    for _ in range(10):
        both.random.choice(steps)()
        both.compare()
