"""Models a write to several edges: the sink's commit against real cores, ended at any call (K14).

An attempt stages a batch at its edges and commits it; it may end before or after any call of the
commit, and the next attempt is another run, whose rows may be distributed otherwise. Attempts of
one batch have as many rows in all and differ in the rows of each edge, so the rows that are visible
at the end show which attempts they are from.
"""

from itertools import count
from typing import NamedTuple

from ackq.client import Stage
from ackq.errors import AckqError
from ackq.spark.sink import edges
from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import Core, views
from ackq_broker.core import commands as c
from tests.model.broker import perform

WRITER = "query"


class Died(Exception):  # noqa: N818
    """The driver ends here."""


class Attempt(NamedTuple):
    """One run of the batch: the rows at each edge, and where it ends; None: it goes through.

    Attributes:
        rows: Rows by edge: also edges without rows are named by the option `endpoint`.
        ends: The number of calls of the commit that are made.
        heard: Whether the answer of the last call that was made came.
        aborts: Whether Spark aborts the attempt then, as for an error and not for a kill.
    """

    rows: dict[str, int]
    ends: int | None = None
    heard: bool = True
    aborts: bool = False


class Sink:
    """Edges with one queue each. Subclasses switch a rule off."""

    def __init__(self):
        self.cores = {}
        self.ids = count(1)

    def run(self, attempt, run, batch=0):
        """Runs an attempt; returns the error that ended it, or None."""
        staged = {}
        for name, rows in attempt.rows.items():
            staged[name] = [self.stage(name, rows, run, batch)] if rows else []
        calls = count(1)

        def called(kind, name, stages, **fields):
            number = next(calls)
            if attempt.ends is not None and number > attempt.ends:
                raise Died
            fields = {"prepare": kind == "prepare", "batch_id": batch, **fields}
            answer = self.commit(name, stages, run, fields)
            if attempt.ends == number and not attempt.heard:
                raise Died
            return answer

        def prepare(name, stages, known_as, **fields):
            return called("prepare", name, stages, edges=known_as, **fields)

        def commit_at(name, stages, **fields):
            return called("commit", name, stages, **fields)

        try:
            edges.commit(WRITER, staged, prepare, commit_at)
        except (AckqError, Died) as error:
            if attempt.aborts:
                for name, stages in staged.items():
                    ids = tuple(each.stage_id for each in stages)
                    self.decide(name, c.AbortBatch(WRITER, batch, ids))
            return error
        return None

    def stage(self, name, rows, run, batch):
        stage = c.StageRef(b"%d" % next(self.ids) * 16, rows, 10 * rows)
        stage = stage._replace(stage_id=stage.stage_id[:16])
        self.decide(name, c.OpenStage(stage.stage_id, WRITER, batch, run))
        self.decide(name, c.StageBlock(stage.stage_id, "", c.Routes(("q",)), rows, 10 * rows))
        self.decide(name, c.SealStage(*stage))
        return Stage(*stage)

    def commit(self, name, stages, run, fields):
        others = tuple(
            c.EdgeStages(each, tuple(c.StageRef(*stage) for stage in named))
            for each, named in fields.pop("others", {}).items()
        )
        named = tuple(c.StageRef(*stage) for stage in stages)
        known = {"run_id": run, "execution_id": "", "target": "q"}
        command = c.CommitBatch(WRITER, stages=named, others=others, **known, **fields)
        reply = self.decide(name, command)
        others = [
            pb.EdgeStages(
                endpoint=each.endpoint,
                stages=[pb.StageReference(**stage._asdict()) for stage in each.stages],
            )
            for each in reply.others
        ]
        known = {"edges": reply.edges, "others": others}
        if command.prepare:
            return pb.PrepareBatchResponse(committed=reply.repeated, broker=name.encode(), **known)
        return pb.CommitBatchResponse(repeated=reply.repeated, **known)

    def core(self, name):
        """The edge's core, with the queue."""
        if name not in self.cores:
            core = Core()
            for command in (c.Start("history"), c.DeclareQueue("q", c.QueueProperties())):
                perform(core, command)
            self.cores[name] = core
        return self.cores[name]

    def decide(self, name, command):
        return perform(self.core(name), command)

    def visible(self):
        """The visible rows of each edge that has some."""
        found = {name: views.list_queues(self.core(name).state, "q")[0] for name in self.cores}
        return {name: queue.ready for name, queue in found.items() if queue.ready}

    def staged(self):
        """The rows that are staged anywhere."""
        return sum(views.list_queues(self.core(name).state, "q")[0].staged for name in self.cores)


def calls(attempt):
    """The number of calls of an attempt that goes through."""
    return 3 * len(attempt.rows) - 1


def flaw(sink, attempts):
    """Returns the flaw of a batch whose last attempt went through, or ""."""
    whole = [{name: rows for name, rows in each.rows.items() if rows} for each in attempts]
    visible = sink.visible()
    if visible not in whole:
        return f"visible {visible}, and no attempt wrote that: {whole}"
    return ""
