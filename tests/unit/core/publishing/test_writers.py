"""Writers: their number, retention and forgetting (K3)."""

from ackq import errors
from ackq_broker.core import commands as c
from ackq_broker.core import views
from tests.unit.core.harness import DAY_US, SECOND_US, refused, routes

ID = b"stage".ljust(16)
HOUR_US = 3600 * SECOND_US


def remembered(harness):
    """The writers that the broker remembers."""
    return [writer.writer for writer in views.list_writers(harness.core.state, 100)]


def single(*stages):
    """The commit of a write that cannot be run again."""
    return c.CommitBatch("write/1", 0, "run", "", stages, single=True)


def single_stage(harness, name):
    """A sealed stage of one row, of a write that cannot be run again."""
    stage_id = name.encode().ljust(16)
    harness.do(c.OpenStage(stage_id, "write/1", 0, "run", single=True))
    harness.do(c.StageBlock(stage_id, "", routes(["q"]), 1, 10))
    harness.do(c.SealStage(stage_id, 1, 10))
    return c.StageRef(stage_id, 1, 10)


# --- retention ---


def test_the_stages_of_a_write_that_nobody_can_run_again_go_after_a_day(harness):
    """K3: stages and room go a day after the last call of any of its tasks; then the writer."""
    stage = single_stage(harness, "a")
    harness.housekeep_after(DAY_US - HOUR_US)
    late = single_stage(harness, "b")
    harness.housekeep_after(DAY_US - HOUR_US)
    assert harness.info("q").staged == 2
    assert harness.decide(c.Housekeep()).records == ()
    harness.housekeep_after(2 * HOUR_US)
    assert harness.info("q").staged == 0
    refused(errors.StageMismatchError, "does not exist", harness.do, single(stage, late))
    harness.do(c.Housekeep())
    assert remembered(harness) == []


def test_a_write_that_nobody_can_run_again_is_forgotten_an_hour_after_its_commit(harness):
    """K3, K12: until then a repeated commit is answered; later its outcome is unknown."""
    commit = single(single_stage(harness, "a"))
    assert harness.do(commit) == c.CommittedBatch(1, False)
    harness.housekeep_after(HOUR_US - 100)
    assert harness.do(commit) == c.CommittedBatch(1, True)
    harness.housekeep_after(100)
    assert remembered(harness) == []
    refused(errors.OutcomeUnknownError, "the rows may be in the queue", harness.do, commit)
    assert harness.ready("q") == 1


def test_other_writers_are_remembered(harness):
    """K3: one that committed and can be run again is never forgotten; any other in 7 days."""
    for name in ("many", "none"):
        harness.stage(name, 1, ["q"], name=name)
    harness.commit("many", 1)
    # A writer's committed batch is not forgotten because a stage calls itself single.
    harness.do(c.OpenStage(ID, "many", 2, "run", single=True))
    harness.do(c.DropStage(ID))
    harness.do(c.AbortBatch("none", 1, (b"none".ljust(16),)))
    harness.housekeep_after(7 * DAY_US - 100)
    assert remembered(harness) == ["many", "none"]
    for time_us in (200, 1000 * DAY_US):
        harness.housekeep_after(time_us)
        assert remembered(harness) == ["many"]
    assert harness.decide(c.Housekeep()).records == ()


# --- bound ---


def test_the_number_of_writers_is_bounded(harness, monkeypatch):
    """I6, K3: a new writer is refused with the remedy; known ones go on; forgetting makes room."""
    monkeypatch.setattr("ackq.limits.MAX_WRITERS", 2)
    harness.commit("a", 1)
    stage = harness.stage("b", 1, ["q"], name="b")
    for command in (c.OpenStage(ID, "new", 1, "run"), c.CommitBatch("new", 1, "run", "", ())):
        refused(errors.LimitError, "remembers 2 writers.*`ackq writer forget`", harness.do, command)
    assert harness.commit("a", 2) == c.CommittedBatch(0, False)
    assert harness.commit("b", 1, stage) == c.CommittedBatch(1, False)
    harness.do(c.ForgetWriter("a", force=True))
    assert harness.commit("new", 1) == c.CommittedBatch(0, False)


# --- forgetting ---


def test_a_writer_that_may_be_live_is_not_forgotten(harness):
    """K3: within a day of its last call by force alone, and never while it has stages."""
    harness.commit("query", 7, harness.stage("query", 7, ["q"], name="a"))
    forget = c.ForgetWriter("query")
    told = "was active at 2023-11-14T22:13:20Z, within the last"
    refused(errors.InUseError, told, harness.do, forget)
    harness.stage("query", 8, ["q"], name="b")
    harness.now_us += 2 * DAY_US
    told = r"it has 1 stage.*`ackq batch drop`"
    refused(errors.InUseError, told, harness.do, c.ForgetWriter("query", force=True))
    harness.do(c.DropBatch(c.BatchKey("query", 8)))
    assert (harness.do(forget), harness.do(forget)) == (True, False)
    for command in (c.CommitBatch("query", 8, "next", "", ()), c.OpenStage(ID, "query", 7, "next")):
        told = r"was forgotten at 2023-11-1.*checkpoint"
        refused(errors.WriterForgottenError, told, harness.do, command)
    told = "There is no writer 'other'"
    refused(errors.WriterNotFoundError, told, harness.do, c.ForgetWriter("other"))


def test_forgotten_names_are_bounded(harness, monkeypatch):
    """I6: no forgotten name makes room for another, which could double a batch."""
    monkeypatch.setattr("ackq_broker.core.publishing.writers.MAX_FORGOTTEN", 1)
    for name in ("a", "b"):
        harness.commit(name, 1)
    harness.do(c.ForgetWriter("a", force=True))
    told = "the names of 1 forgotten writers, its limit"
    refused(errors.LimitError, told, harness.do, c.ForgetWriter("b", force=True))
    assert remembered(harness) == ["b"]
