"""Runs the real core behind calls that take and return snapshots.

A state of the broker is a snapshot, so a model can continue from it in several ways. Everything
that was applied is on disk: a broker that dies before that is one that did nothing.
"""

from typing import NamedTuple

from msgspec import structs
from pyroaring import BitMap64

from ackq.errors import AckqError
from ackq.outcomes import Disposition, Outcome
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from ackq_broker.core.sessions.holder import FORGOTTEN
from tests.unit.core.harness import Harness, block_rows

NOW_US = 1_800_000_000_000_000
# Equal states get equal sequence numbers, however many records came before.
HOUR_US = 3_600_000_000
SEQUENCE = 1_000
NOW_EPOCH = 10
SESSION, QUEUE, DEAD, CHANNEL = "s", "q", "dead", b"channel"


class Settle(NamedTuple):
    """A command that settles one tag of a consumer; hashable, so it can be a key."""

    outcome: Outcome
    tag: int


class Row(NamedTuple):
    """A row as a task reads it; every field must be the same on a replay."""

    tag: int
    name: str
    deliveries: int


class Group(NamedTuple):
    """The outcome of one tag."""

    outcome: Outcome
    tag: int


class Stage(NamedTuple):
    """A command that stages the outcomes of a task; hashable, so it can be a key."""

    stage_id: bytes
    owner: c.LeaseOwner
    groups: tuple[Group, ...]


class TimePasses(NamedTuple):
    """A command that makes messages with a redelivery delay ready; hashable, so it can be a key."""


class DayPasses(NamedTuple):
    """A command that makes the broker forget abandoned state; hashable, so it can be a key."""

    live: bool


def perform(core, command, now_us=NOW_US):
    """Decides and applies a command; returns its reply."""
    decision = core.decide(command, now_us)
    for record in decision.records:
        core.apply(core.sequence + 1, record)
    return decision.reply


class Broker:
    """The broker with all its rules. Caches calls: most states of a world share a snapshot."""

    def __init__(self):
        self._calls = {}
        self._reads = {}
        self.labels = {}

    def fill(self, messages):
        """Returns the first snapshot: a queue of `messages` messages m1, m2, ..., a block each."""
        harness = Harness()
        harness.declare(DEAD)
        harness.declare(QUEUE, dead_letter_queue=DEAD)
        for _ in range(messages):
            harness.publish_to(QUEUE, 1)
        self.labels = harness.labels
        return self._settled(harness.core)

    def call(self, snapshot, command):
        """Returns (snapshot after the command, its reply or the error it raised)."""
        key = snapshot, repr(command)  # bitmaps, which some commands hold, have no hash
        if key not in self._calls:
            self._calls[key] = self._call(snapshot, command)
        return self._calls[key]

    def fetch(self, snapshot, incarnation, epoch, after, last):
        """Returns the rows of a range of tags, or the error."""
        key = snapshot, incarnation, epoch, after, last
        if key not in self._reads:
            core = Core.restore(snapshot)
            try:
                pieces = self.pieces(core, incarnation, epoch, after, last)
            except AckqError as error:
                self._reads[key] = error
            else:
                self._reads[key] = self._rows(pieces)
        return self._reads[key]

    def lease(self, snapshot):
        """Returns the rows of the outstanding lease, in tag order; empty without a lease."""
        key = snapshot, "its lease"
        if key not in self._reads:
            core = Core.restore(snapshot)
            session = core._state.sessions.get(SESSION)
            rows = ()
            if session is not None and session.lease is not None:
                found = session.incarnation, session.epoch, session.floor, session.end
                rows = self._rows(views.fetch(core.state, SESSION, *found))
            self._reads[key] = rows
        return self._reads[key]

    def held(self, snapshot):
        """Returns (labels of ready or unacked messages of the queue, labels of dead letters)."""
        if snapshot not in self._reads:
            core = Core.restore(snapshot)
            self._reads[snapshot] = tuple(
                self.names(views.browse(core.state, name)) for name in (QUEUE, DEAD)
            )
        return self._reads[snapshot]

    def holder(self, snapshot, incarnation):
        """The token of the holder of a session, by incarnation; None without one, or to open."""
        key = snapshot, incarnation
        if key not in self._reads:
            found = views.incumbent(Core.restore(snapshot).state, SESSION, incarnation)
            self._reads[key] = found[1] if found is not None else None
        return self._reads[key]

    def restarted(self, snapshot):
        """The snapshot after the broker died and started again."""
        return self.call(snapshot, c.Start("history"))[0]

    def renamed(self, snapshot, tokens):
        """Returns the snapshot with the tokens of holders replaced: ((old, new), ...)."""
        return self._changed(snapshot, "tokens", dict(tokens))

    def plain(self, world):
        """Returns the world with its epochs normalized to the lowest equivalent values.

        Of an epoch only this matters: whether it is the session's or an older one. Of an ended
        incarnation only this matters: that it is no session's, unless it was forgotten.
        """
        epoch = self._epoch(world.broker)
        named = {incarnation for incarnation, _ in world.checkpoint.offsets}
        named |= {d.incarnation for d in (world.driver, world.zombie) if d is not None}
        broker = self._changed(world.broker, "epoch", {}, frozenset(named))
        changes = {}
        for role in ("driver", "zombie"):
            driver = getattr(world, role)
            if driver is not None and driver.epoch:
                now = NOW_EPOCH if driver.epoch == epoch else NOW_EPOCH - 1
                changes[role] = driver._replace(epoch=now)
        return world._replace(broker=broker, **changes)

    def _epoch(self, snapshot):
        key = snapshot, "its epoch"
        if key not in self._reads:
            session = Core.restore(snapshot)._state.sessions.get(SESSION)
            self._reads[key] = session.epoch if session is not None else 0
        return self._reads[key]

    def _changed(self, snapshot, what, names, named=None):
        key = snapshot, what, tuple(names.items()), named
        if key not in self._calls:
            core = Core.restore(snapshot)
            for incarnation, ended in sorted(core._state.ended.items()):
                del core._state.ended[incarnation]
                if ended.how == FORGOTTEN and (named is None or incarnation in named):
                    core._state.ended[incarnation] = ended
            for session in core._state.sessions.values():
                _rename(session, names)
                if what == "epoch":
                    _lower(session)
            self._calls[key] = core.snapshot()
        return self._calls[key]

    def _call(self, snapshot, command):
        core = Core.restore(snapshot)
        try:
            reply = self.perform(core, command)
        except AckqError as error:
            return snapshot, error
        return self._settled(core), reply

    def _settled(self, core):
        _renumber(core._state)
        core._state.sequence = core._state.topology_sequence = SEQUENCE
        for session in core._state.sessions.values():
            if session.lease is not None:
                session.lease.attaches = 1  # a figure for operators
        return core.snapshot()

    def _rows(self, pieces):
        tags = [
            (run.first_tag + row, run.delivery_count)
            for piece in pieces
            for run in piece.runs
            for row in range(run.rows)
        ]
        names = self.names(pieces)
        return tuple(Row(tag, name, n) for (tag, n), name in zip(tags, names, strict=True))

    def names(self, pieces):
        """Labels of the rows of pieces."""
        return tuple(self.labels[p.block_id, row] for p in pieces for row in block_rows(p))

    # --- steps that the rules switched off in rules.py override ---

    def perform(self, core, command):
        """Decides and applies a command; returns its reply."""
        if isinstance(command, Settle):
            command = c.Settle(CHANNEL, command.outcome, BitMap64([command.tag]))
        now_us = NOW_US
        if isinstance(command, Stage):
            groups = tuple(
                c.OutcomeGroup(Disposition(g.outcome), BitMap64([g.tag])) for g in command.groups
            )
            command = c.StageOutcomes(command.stage_id, command.owner, "", False, groups)
        if isinstance(command, TimePasses):
            command, now_us = c.Tick(), NOW_US + HOUR_US
        if isinstance(command, DayPasses):
            live = frozenset({SESSION} if command.live else ())
            command, now_us = c.Housekeep(live), NOW_US + 25 * HOUR_US
        return perform(core, command, now_us)

    def pieces(self, core, incarnation, epoch, after, last):
        """Reads the pieces of a range of tags."""
        return views.fetch(core.state, SESSION, incarnation, epoch, after, last)


def _leases(session):
    """All leases of a session, retained ones included."""
    return tuple(filter(None, (session.lease, *session.kept)))


def _renumber(state):
    """Replaces sequences of leases and first fetches by rank: only their order matters (S11)."""
    leases = [lease for session in state.sessions.values() for lease in _leases(session)]
    own = state.queries.get("", {})  # a world has no users
    batches = [session.planned for session in state.sessions.values()]
    known = {each.sequence for each in (*leases, *batches, *own.values())}
    rank = {sequence: number for number, sequence in enumerate(sorted(known), 1)}
    for lease in leases:
        lease.sequence = rank[lease.sequence]
    for session in state.sessions.values():
        now = rank[session.planned.sequence]
        session.planned = structs.replace(session.planned, sequence=now)
    state.queries[""] = {
        name: structs.replace(query, sequence=rank[query.sequence])
        for name, query in sorted(own.items())
    }


def _rename(session, names):
    """Replaces tokens of holders, and run ids made from them; drops the readers of dead runs."""
    holder = session.holder
    session.holder = structs.replace(holder, token=names.get(holder.token, holder.token))
    session.fenced = tuple(names.get(token, token) for token in session.fenced)
    runs = {old.hex(): new.hex() for old, new in names.items()}
    for lease in _leases(session):
        lease.readers = tuple(
            structs.replace(reader, run_id=runs.get(reader.run_id, reader.run_id))
            for reader in lease.readers
            if any(runs.get(reader.run_id, reader.run_id).strip("0"))
        )


def _lower(session):
    """Lowers the epochs of a session to the lowest equivalent values."""

    def low(epoch):
        return NOW_EPOCH if epoch == session.epoch else NOW_EPOCH - 1

    for lease in _leases(session):
        lease.readers = tuple(structs.replace(r, epoch=low(r.epoch)) for r in lease.readers)
        if lease.outcomes is not None:
            lease.outcomes.epoch = low(lease.outcomes.epoch)
    session.named = low(session.named)
    session.epoch = NOW_EPOCH
