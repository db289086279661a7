"""The core against the model, sessions above all: outcomes, timeouts, operators, in any order.

S1-S8, S11, S13, K2, C13, C14, with the consumers, queues, time and restarts of `test_model`.
"""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from pyroaring import BitMap64

from ackq.errors import BatchChangedError, FencedError
from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.sizes import sized
from tests.unit.core.model import Message
from tests.unit.core.model_sessions import Row, Session, back
from tests.unit.core.test_model import CoreMachine

SESSIONS = {"one": ("a", "b"), "two": ("x", "d", "ttl")}
# Longer than any run of the machine lasts.
RETAIN_MS = 100 * 365 * 24 * 3_600_000
KEYS = ("a", "b", "b", "x", "x", "d", "ttl")
names = st.sampled_from(sorted(SESSIONS))
says = st.tuples(
    st.sampled_from(Outcome), st.sampled_from(["", "bad", "worse"]), st.sampled_from([0, 0, 2500])
)


class SessionMachine(CoreMachine):
    """As `CoreMachine`; session `one` reads a and b, `two` reads ttl, x and d, its dead letters."""

    # Rules that `CoreMachine` runs are off, so that the rules of this class get their turn.
    publish = retransmit = stage = commit = fail_again = deliver_without_acks = None
    reject = requeue = pass_by = None

    def __init__(self):
        super().__init__()
        self.read = {}
        self.readers = {}
        self.numbers = 0
        # The query's latest batch, and when it was read first.
        self.latest = 0, 0

    def draw(self, data, *, leasing=False):
        names = [name for name, session in self.read.items() if session.lease or not leasing]
        name = data.draw(st.sampled_from(sorted(names)))
        return self.read[name], self.readers[name]

    def number(self):
        self.numbers += 1
        return self.numbers

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=2, max_size=9), durable=st.booleans())
    def fill(self, keys, *, durable):
        first = self.harness.number
        self.harness.publish(keys, persistent=durable)
        for number, key in enumerate(keys, first):
            self.published[number] = (key, durable)
            queue = self.model.queues[key]
            queue.put(Message(f"m{number}", durable), self.now_us)
        self.overflow(keys)

    # --- the query ---

    @rule(name=names, limit=st.integers(1, 9), proves=st.booleans(), newcomer=st.booleans())
    def advance(self, name, limit, *, proves, newcomer):
        """S4, S5, S6: resumes a detached lease, applies its outcomes, and leases again."""
        if name not in self.read:
            retain_ms = RETAIN_MS if name == "two" else 0
            opened = self.harness.open(*SESSIONS[name], session=name, retain_ms=retain_ms)
            self.readers[name] = opened
            self.read[name] = Session(name, retains=bool(retain_ms))
        session, reader = self.read[name], self.readers[name]
        self.attached(session, reader, newcomer=newcomer)
        start = session.end if proves else session.floor
        reply = reader.advance(start, max_messages=limit)
        assert reply.epoch == session.epoch
        session.resume(self.now_us)
        queues = [self.model.queues[name] for name in SESSIONS[session.name]]
        ready = {queue.name: queue.waiting(self.now_us) for queue in queues}
        accepts = bool(session.lease) and proves
        unread = accepts and session.batch not in session.batches.values()
        targets = session.accept(self.model, self.now_us) if accepts else []
        if not session.lease:
            assert reply.end_tag - session.floor == min(limit, sum(map(len, ready.values())))
            self.lease(session, reader.pieces(session.floor, reply.end_tag), ready)
        if unread:
            self.count_unread(session)
        for queue in targets:
            queue.overflow()
        assert reply.end_tag == session.end
        infos = [self.harness.info(name) for name in SESSIONS[session.name]]
        assert reply.backlog.ready == sum(info.ready for info in infos)
        assert reply.backlog.unacked == sum(info.unacked for info in infos)

    def count_unread(self, session):
        """S11: a batch that was accepted unread was planned, too, after the last known one."""
        if session.planned:
            session.planned += 1
            if session.planned > self.latest[0]:
                self.latest = session.planned, self.number()

    def attached(self, session, reader, *, newcomer):
        """S3: the same token keeps its epoch, unless its holder was ended."""
        ended = views.list_sessions(self.harness.core.state, session.name)[0].holder is None
        if newcomer or ended:
            token = self.number().to_bytes(16, "little")
            reader.command = replace(reader.command, holder=c.HolderInfo(token))
            session.begin_epoch()

    def lease(self, session, pieces, ready):
        session.batch = self.number()
        for piece in pieces:
            for _, label, count in self.harness.rows([piece]):
                message = ready[piece.queue].pop(0)
                assert (message.label, message.deliveries + 1) == (label, count)
                message.owner = session.name
                session.lease.append(Row(self.model.queues[piece.queue], message, count))

    @precondition(lambda self: self.read)
    @rule(data=st.data(), kept=st.booleans())
    def replay(self, data, *, kept):
        """S1, S2, K2, S5: the same tags give the same rows, whatever happened to their messages."""
        session, reader = self.draw(data)
        self.attached(session, reader, newcomer=False)
        rows = session.kept if kept else session.lease
        floor = session.floor - len(rows) if kept else session.floor
        reply = reader.attach(floor, floor + len(rows))
        session.resume(self.now_us)
        assert reply.epoch == session.epoch
        reader.reply = reader.reply._replace(epoch=reply.epoch)
        after = data.draw(st.integers(floor, floor + len(rows)))
        last = data.draw(st.integers(after, floor + len(rows)))
        assert self.harness.rows(reader.pieces(after, last)) == [
            row.headers(tag)
            for tag, row in enumerate(rows, floor + 1)
            if after < tag <= last and not row.hole
        ]

    @precondition(lambda self: any(session.retained for session in self.read.values()))
    @rule(data=st.data())
    def look_back(self, data):
        """S13: retained batches have the rows that were read, but for purged and lost ones."""
        for name, session in self.read.items():
            rows = [
                row.headers(tag)
                for floor, rows in session.retained
                for tag, row in enumerate(rows, floor + 1)
                if not row.hole
            ]
            if session.retained:
                first, last = session.retained[0][0], session.floor - len(session.kept)
                after = data.draw(st.integers(first, last))
                state = self.harness.core.state
                names = name, self.readers[name].command.incarnation
                pieces = views.retained_pieces(state, *names, after, last, 1 << 20)
                assert self.harness.rows(pieces) == [row for row in rows if row[0] > after]

    def purge(self, data):
        """S13, Q4: purges a queue, with its retained messages."""
        name = super().purge(data)
        for session in self.read.values():
            session.purge(self.model.queues[name])

    def delete(self, data):
        """S13, Q4: deletes a queue, with its retained messages."""
        queue = self.model.queues["x"]
        super().delete(data)
        for session in self.read.values():
            session.purge(queue)

    @precondition(lambda self: any(session.held() for session in self.read.values()))
    @rule(data=st.data(), says=st.lists(says, min_size=1, max_size=3), proves=st.booleans())
    def say_all(self, data, says, *, proves):
        """S4, S6: makes a whole settle call; with `proves` the checkpoint proves its batch."""
        session, _ = self.draw(data, leasing=True)
        self.stage_and_commit(session, data, says, commits=True)
        if proves:
            self.advance(session.name, 4, proves=True, newcomer=False)

    @precondition(lambda self: any(session.held() for session in self.read.values()))
    @rule(data=st.data(), says=st.lists(says, min_size=1, max_size=2))
    def say_some(self, data, says):
        """S6: a task stages outcomes, and its driver commits them later or never."""
        session, _ = self.draw(data, leasing=True)
        self.stage_and_commit(session, data, says, commits=False)

    def stage_and_commit(self, session, data, says, *, commits):
        reader = self.readers[session.name]
        if session.detached or reader.reply.epoch != session.epoch:
            return
        run = f"{session.name}{session.epoch}"
        self.read_batch(session, reader, run)
        tags = st.sets(st.integers(session.floor + 1, session.end), min_size=1)
        groups = [(how, data.draw(tags)) for how in says]
        owner = reader.owner(run_id=run, batch_id=session.batch)
        name = f"s{self.number()}"
        said = {tag: how for how, tags in groups for tag in tags}
        disjoint = tuple(
            c.OutcomeGroup(Disposition(*how), BitMap64(tag for tag in said if said[tag] == how))
            for how in dict.fromkeys(said.values())
        )
        staged = c.StageOutcomes(name.encode(), owner, "", True, disjoint)
        assert self.harness.do(staged) == len(said)
        session.staged[name.encode()] = said
        if commits:
            named = tuple((stage, len(said)) for stage, said in session.staged.items())
            reply = reader.commit(*named, owner=owner)
            assert reply == c.CommittedOutcomes(sum(tags for _, tags in named), False)
            for said in session.staged.values():
                session.commit(said)
            session.staged.clear()

    def read_batch(self, session, reader, run):
        """S6, S11: a run reads the lease; a batch id read before the lease is refused."""
        batch, read_at = self.latest
        if batch and session.batch > read_at:
            with pytest.raises(BatchChangedError):
                reader.note(run_id=run, batch_id=batch)
        if session.batch > min(batch, read_at):
            self.latest = session.batch, self.number()
        reader.note(run_id=run, batch_id=session.batch)
        session.planned = max(session.planned, session.batch)
        session.runs[run] = session.epoch
        session.batches[run] = session.batch

    @precondition(lambda self: any(session.runs for session in self.read.values()))
    @rule(data=st.data())
    def a_zombie_says(self, data):
        """S3, S6: a run that was replaced is refused, and settles nothing."""
        session, reader = self.draw(data)
        runs = [run for run, epoch in session.runs.items() if epoch < session.epoch]
        readers = [r for _, r in self.harness.core._state.runs if r in runs]
        if readers:
            run = data.draw(st.sampled_from(readers))
            with pytest.raises(FencedError):
                reader.commit(owner=reader.owner(run_id=run, batch_id=session.batches[run]))

    def abort(self, data):
        """S6: drops staged outcomes."""
        session, _ = self.draw(data)
        assert self.harness.do(c.AbortOutcomes(tuple(session.staged))) == len(session.staged)
        session.staged.clear()

    # --- its absence, and its operator ---

    @precondition(lambda self: any(session.lease for session in self.read.values()))
    @rule(data=st.data())
    def detach(self, data):
        """S5: detaches a session after its timeout."""
        session, reader = self.draw(data, leasing=True)
        assert reader.detach() == session.detach(self.model)

    @precondition(lambda self: any(session.lease for session in self.read.values()))
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.REJECTED, Outcome.RELEASED]))
    def settle_lease(self, data, outcome):
        """S8: settles tags of a lease as an operator."""
        session, _ = self.draw(data, leasing=True)
        tags = range(session.floor + 1, session.end + 1)
        named = sorted(data.draw(st.sets(st.sampled_from(tags), min_size=1, max_size=3)))
        ranges = tuple((tag, tag) for tag in named)
        reply = self.harness.do(c.SettleLease(session.name, outcome, ranges, discard=True))
        assert reply[:2] == session.settle(self.model, outcome, named, self.now_us)
        assert reply.epoch == session.epoch

    @rule(data=st.data())
    def operate(self, data):
        """Does an act that would end most runs early if it were as likely as the others."""
        acts = [self.close, self.purge, self.delete, self.restart]
        acts += [self.release, self.abort] if self.read else []
        data.draw(st.sampled_from(acts))(data)

    def release(self, data):
        """S5: releases a session; its messages are back in place, with one delivery more."""
        session, _ = self.draw(data)
        held = [row for _, row in session.held()]
        assert self.harness.do(c.ReleaseSession(session.name)) == back(held)
        session.requeue(self.model, held)
        del self.read[session.name], self.readers[session.name]

    def restart(self, data):
        """Q7: leases, holes, outcomes and readers survive a restart."""
        for session in self.read.values():
            session.restart()
        super().restart(data)

    # --- invariants ---

    @invariant()
    def sessions_are_as_in_the_model(self):
        """S1, S5, S6: tags, epoch, lease, holes and outcomes of a session are the model's."""
        for session in self.read.values():
            (info,) = views.list_sessions(self.harness.core.state, session.name)
            assert (info.floor_tag, info.end_tag) == (session.floor, session.end)
            assert (info.epoch, info.detached) == (session.epoch, session.detached)
            assert info.leased == len(session.held())
            assert info.holes == len(session.lease) - len(session.rows())
            assert info.holes == sum(count for _, count in info.holes_by_reason)
            said = next(iter(session.said.values()), {})
            named = [said[tag][0] for tag, _ in session.rows() if tag in said]
            assert info.settled == sum(outcome is not Outcome.ACCEPTED for outcome in named)

    def needed(self):
        """K2, S13: a message in a kept lease is needed as well."""
        kept = [row for session in self.read.values() for row in session.kept]
        kept += [row for each in self.read.values() for _, rows in each.retained for row in rows]
        return super().needed() | {row.message.label for row in kept if not row.hole}


# As `TestCore`: minutes on a machine that does ten other things.
TestSessions = pytest.mark.timeout(600)(SessionMachine.TestCase)
TestSessions.settings = settings(max_examples=sized(16, 150), stateful_step_count=50)
