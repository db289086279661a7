"""Models two queries with copies of one checkpoint that read another source and write to ackq (K3).

The source is a file source, for example: rows come and stay, and a batch takes the rows since the
last batch. So only the sink's own record keeps the two copies apart. Each query goes as Spark does:
offsets/N, the sink's commit, commits/N; it may end at any step and run again, under another run id.
An operator may have the writer forgotten, once.
"""

from typing import NamedTuple

from ackq.errors import AckqError
from ackq_broker.core import Core
from ackq_broker.core import commands as c
from tests.model.broker import SEQUENCE, perform
from tests.unit.core.harness import Harness

WRITER = "query"
ROW_BYTES = 10
# The runs of queries that a crash begins, beside the first ones.
CRASHES = 1


class Query(NamedTuple):
    """A query with its checkpoint: the end of each batch, and the number of committed batches.

    Rows up to `copied` were committed in the checkpoint that it was copied from.
    """

    target: str
    run: int
    copied: int = 0
    ends: tuple[int, ...] = ()
    commits: int = 0
    written: bool = False
    ended: bool = False


class World(NamedTuple):
    """A state of the model; `rows` has the rows of each target, in the order they arrived."""

    broker: bytes
    came: int
    queries: tuple[Query, ...]
    rows: tuple[tuple[str, int], ...] = ()
    runs: int = 1
    stuck: str = ""
    forgotten: bool = False


class Sink:
    """The real core: takes a batch, has it, or refuses it. Subclasses switch a rule off."""

    def __init__(self, targets):
        self.targets = targets

    def first(self):
        """Returns the first snapshot: a broker with the target queues."""
        harness = Harness()
        harness.declare(*set(self.targets))
        return harness.core.snapshot()

    def write(self, snapshot, query, rows):
        """Returns (snapshot after the batch's commit, its reply or the error it raised)."""
        core = Core.restore(snapshot)
        try:
            reply = self.perform(core, query, rows)
        except AckqError as error:
            return snapshot, error
        core._state.sequence = core._state.topology_sequence = SEQUENCE
        return core.snapshot(), reply

    def forget(self, snapshot):
        """The snapshot after an operator had the writer forgotten, if it had committed a batch."""
        core = Core.restore(snapshot)
        try:
            perform(core, c.ForgetWriter(WRITER, force=True))
        except AckqError:
            return snapshot
        core._state.sequence = core._state.topology_sequence = SEQUENCE
        return core.snapshot()

    def perform(self, core, query, rows):
        """Stages a batch as a task does, and commits it as the driver does."""
        batch, run = query.commits, f"run {query.run}"
        stage = c.StageRef(f"{run}:{batch}".encode().ljust(16), rows, ROW_BYTES * rows)
        route = c.Routes((query.target,))
        for command in (
            c.OpenStage(stage.stage_id, WRITER, batch, run),
            c.StageBlock(stage.stage_id, "", route, rows, stage.payload_bytes),
            c.SealStage(*stage),
        ):
            perform(core, command)
        return perform(core, self.commit(core, query, run, stage))

    def commit(self, core, query, run, stage):
        """The driver's command that commits a batch."""
        del core
        return c.CommitBatch(WRITER, query.commits, run, "", (stage,), target=query.target)


class Copies:
    """One query, whose checkpoint is then copied: both queries run."""

    def __init__(self, broker, *, operator=False):
        self.broker = broker
        self.operator = operator
        self.most = 0

    def first(self, messages):
        """The first world: a query at its start, and the first of `messages` rows."""
        self.most = messages
        return World(self.broker.first(), 1, (Query(self.broker.targets[0], 1),))

    def events(self, world):
        """Yields (event, world after it) for every event that may happen next."""
        if world.came < self.most:
            yield f"row {world.came + 1} comes", world._replace(came=world.came + 1)
        if len(world.queries) < len(self.broker.targets):
            original = world.queries[0]
            copy = Query(
                self.broker.targets[1],
                world.runs + 1,
                committed(original),
                original.ends,
                original.commits,
            )
            both = world._replace(queries=(original, copy), runs=world.runs + 1)
            yield "the checkpoint is copied", both
        if self.operator and not world.forgotten:
            forgotten = world._replace(broker=self.broker.forget(world.broker), forgotten=True)
            yield "the writer is forgotten", forgotten
        for at, query in enumerate(world.queries):
            if not query.ended:
                yield from self._steps(world, at, query)
            if world.runs < len(self.broker.targets) + CRASHES:
                again = query._replace(run=world.runs + 1, written=False, ended=False)
                after = put(world, at, again)._replace(runs=world.runs + 1)
                yield f"query {at} begins again", after

    def _steps(self, world, at, query):
        if query.written:
            done = query._replace(commits=query.commits + 1, written=False)
            yield f"query {at} writes commits/{query.commits}", put(world, at, done)
        elif query.commits < len(query.ends):
            yield self._write(world, at, query)
        elif world.came > (query.ends or (0,))[-1]:
            planned = query._replace(ends=(*query.ends, world.came))
            yield f"query {at} writes offsets/{query.commits}", put(world, at, planned)

    def _write(self, world, at, query):
        rows = batch_rows(query)
        broker, reply = self.broker.write(world.broker, query, len(rows))
        what = f"query {at} writes batch {query.commits}, rows {rows}, to {query.target}"
        if isinstance(reply, AckqError):
            return f"{what}: {reply}", put(world, at, query._replace(ended=True))
        world = put(world._replace(broker=broker), at, query._replace(written=True))
        if reply.repeated:
            return f"{what}: it was there", world
        got = tuple((query.target, row) for row in rows)
        return what, world._replace(rows=world.rows + got)


def batch_rows(query):
    """The rows of a query's current batch."""
    ends = (0, *query.ends)
    return list(range(ends[query.commits] + 1, ends[query.commits + 1] + 1))


def committed(query):
    """The last row that a query's checkpoint has as written."""
    return query.ends[query.commits - 1] if query.commits else 0


def put(world, at, query):
    """The world with the query in its place."""
    queries = (*world.queries[:at], query, *world.queries[at + 1 :])
    return world._replace(queries=queries)


def flaw(_broker, world, _names):
    """Returns the flaw of a world, or ""; a refused query is none, as it knows that it failed."""
    for entry in world.rows:
        if world.rows.count(entry) > 1:
            return f"row {entry[1]} is doubled in {entry[0]}"
    for query in world.queries:
        for row in range(query.copied + 1, committed(query) + 1):
            if (query.target, row) not in world.rows:
                return f"row {row} is lost: {query.target} does not have it"
    return ""
