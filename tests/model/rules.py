"""The broker, Spark or sink with one rule switched off: the explorer must find a flaw."""

from dataclasses import replace

from ackq.outcomes import Outcome
from ackq_broker.core import Core
from ackq_broker.core import commands as c
from ackq_broker.core.sessions import retention
from ackq_broker.core.sessions.holder import FORGOTTEN, find_session
from ackq_broker.core.state.state import Ended
from tests.model.broker import QUEUE, SESSION, Broker
from tests.model.world import DRIVER, Spark
from tests.model.writing import WRITER, Sink


class NoKeptLease(Broker):
    """K2 off: the lease accepted last cannot be read again."""

    def perform(self, core, command):
        reply = super().perform(core, command)
        for session in core._state.sessions.values():
            retention.release(core._state, session, len(session.kept))
        return reply


class LeaseMadeAnew(Broker):
    """S4 off: a start at the floor gets a new lease, not exactly the outstanding one."""

    def perform(self, core, command):
        session = core._state.sessions.get(SESSION)
        if (
            isinstance(command, c.Advance)
            and command.incarnation
            and session is not None
            and session.lease is not None
            and command.start_tag == session.floor
        ):
            for queue_id, positions in session.held().items():
                core._state.queues[queue_id].requeue(positions, core.sequence)
            session.lease, session.end = None, session.floor
        return super().perform(core, command)


class AnyLease(Broker):
    """S11 off: a batch id may read any lease, whatever it has read before, and none."""

    def perform(self, core, command):
        core._state.queries.clear()
        if isinstance(command, c.Advance):
            command = replace(command, refuse_unread=False)
        return super().perform(core, command)


class RowsAlone(Broker):
    """S11 off in part: a batch without rows is not known to the broker."""

    def perform(self, core, command):
        empty = isinstance(command, c.NoteFetch) and command.empty
        if empty or (isinstance(command, c.Attach) and command.planned):
            return None
        return super().perform(core, command)


class ForgottenIsRefused(Broker):
    """S9 off: tag 0 of a forgotten incarnation is refused, like any other tag of it."""

    def perform(self, core, command):
        if isinstance(command, c.Advance):
            known = core._state.incarnations
            if command.incarnation and command.incarnation not in known:
                find_session(core._state, command.session, command.incarnation)
        return super().perform(core, command)


class UnknownOpensAnew(Broker):
    """S9 off: tag 0 of any missing incarnation opens a new one, also after it was replaced."""

    def perform(self, core, command):
        state = core._state
        if isinstance(command, c.Advance) and command.incarnation and not command.start_tag:
            known = command.incarnation in state.incarnations or SESSION in state.sessions
            if not known:
                state.ended[command.incarnation] = Ended(SESSION, FORGOTTEN, 0)
        return super().perform(core, command)


class NoSuccessor(Broker):
    """S9 off: the successor of a forgotten incarnation does not know which one it succeeds."""

    def perform(self, core, command):
        reply = super().perform(core, command)
        for session in core._state.sessions.values():
            session.succeeds = ""
        return reply


class OpeningTakesOver(Broker):
    """S9 off: an opening replaces a session with a live holder or a lease."""

    def perform(self, core, command):
        if isinstance(command, c.Advance) and not command.incarnation:
            command = replace(command, takeover=True)
        return super().perform(core, command)


class NoFencing(Broker):
    """S3 off: a fetch of an older epoch is as good as one of the present epoch."""

    def pieces(self, core, incarnation, epoch, after, last):
        name = core._state.incarnations.get(incarnation)
        if name is not None:
            epoch = core._state.sessions[name].epoch
        return super().pieces(core, incarnation, epoch, after, last)


class AcceptsWhatIsPlanned(Spark):
    """K1, S4 off: a batch is accepted when offsets/N is written, not when commits/N proves it."""

    def _offsets(self, world, role, driver):
        text, after = super()._offsets(world, role, driver)
        if role == "driver" and after.driver.step == "fetch":
            accept = c.Advance(
                SESSION,
                driver.incarnation,
                c.HolderInfo(DRIVER),
                (QUEUE,),
                driver.end,
                min_messages=1_000,
            )
            broker, _ = self.broker.call(after.broker, accept)
            after = after._replace(broker=broker)
            text = f"{text}, and accepts it"
        return text, after


class SinkWithoutBatchId(Spark):
    """K3 off: the sink appends every batch, also one that it has."""

    def _has(self, world, driver):
        del world, driver
        return False


class OutcomesAtOnce(Broker):
    """S6 off: outcomes take effect when they are committed, not when the lease is accepted."""

    def perform(self, core, command):
        reply = super().perform(core, command)
        if isinstance(command, c.CommitOutcomes):
            lease = core._state.sessions[SESSION].lease
            for entry in lease.outcomes.negative if lease is not None and lease.outcomes else ():
                outcome = Outcome(entry.outcome)
                spans = tuple((tag, tag) for tag in entry.tags)
                epoch = core._state.sessions[SESSION].epoch
                super().perform(core, c.SettleLease(SESSION, outcome, spans, fence=True))
                core._state.sessions[SESSION].epoch = epoch
        return reply


class ForgottenIsNew(Sink):
    """K3 off: a writer that was forgotten may write as if it were new."""

    def forget(self, snapshot):
        core = Core.restore(super().forget(snapshot))
        core._state.forgotten.clear()
        return core.snapshot()


class AnyRepetition(Sink):
    """K3 off: an equal batch id is a repetition, whatever rows it has."""

    def commit(self, core, query, run, stage):
        return replace(super().commit(core, query, run, stage), keep_changed=True)


class AnyTarget(Sink):
    """K3 off: the target of a batch is not compared."""

    def commit(self, core, query, run, stage):
        return replace(super().commit(core, query, run, stage), target="a target")


class AnyCount(Sink):
    """K3 off: the row count of a batch is not compared."""

    def commit(self, core, query, run, stage):
        writer = core._state.writers[WRITER]
        if writer.batch_id == query.commits:
            writer.rows = stage.rows
        return super().commit(core, query, run, stage)
