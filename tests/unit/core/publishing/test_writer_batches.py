"""Writer batches: staged rows are invisible, and become visible together, once (K3, K12, K14).

Copies of checkpoints and every order of crashes: tests/model.
"""

import pytest
from pyroaring import BitMap64

from ackq import errors
from ackq_broker.core import commands as c
from ackq_broker.core import records
from tests.unit.core.harness import DAY_US, refused, routes

ID, SEALED = b"stage".ljust(16), b"sealed".ljust(16)
EDGES = "a:1,b:1"


def block(*keys, stage_id=ID, **options):
    """A block of 10 bytes for each key."""
    return c.StageBlock(stage_id, "", routes(keys), len(keys), 10 * len(keys), **options)


def test_a_newer_run_drops_the_stages_of_older_ones(harness):
    """K3: and no run that was seen before drops the newer one's, however late its tasks end."""
    old = harness.stage("w", 1, ["q"], run_id="old", name="old")
    harness.stage("v", 1, ["q"], run_id="old", name="other")
    new = harness.stage("w", 1, ["q"], run_id="new", name="new")
    assert harness.info("q").staged == 2
    harness.stage("w", 1, ["q"], run_id="old", name="zombie")
    refused(errors.StageMismatchError, "does not exist", harness.commit, "w", 1, old, run_id="old")
    harness.commit("w", 1, new, run_id="new")
    assert harness.browse("q") == ["new0"]


def test_the_number_of_stages_is_bounded(harness, monkeypatch):
    """I6: a stage over the limit is refused with it; an abort or a drop makes room."""
    monkeypatch.setattr("ackq_broker.core.publishing.writer_batches.MAX_STAGES", 1)
    harness.stage("w", 1, ["q"], name="a")
    refused(errors.LimitError, "1 stages", harness.do, c.OpenStage(ID, "w", 1, "run"))
    harness.do(c.AbortBatch("w", 1, (b"a".ljust(16),)))
    harness.do(c.OpenStage(ID, "w", 1, "run"))
    harness.do(c.DropStage(ID))
    harness.stage("w", 1, ["q"], name="b")


def test_unroutable_rows_go_to_their_queue(harness):
    """P7: with an `unroutable_queue` no row is refused; each row is in a queue once."""
    harness.declare("lost")
    harness.do(c.OpenStage(ID, "w", 1, "run"))
    assert harness.do(block("q", "nowhere", "lost", unroutable_queue="lost")).rows == 3
    gone = block("no", unroutable_queue="gone")
    refused(errors.QueueNotFoundError, "'gone'", harness.do, gone)
    harness.do(c.SealStage(ID, 3, 30))
    harness.commit("w", 1, c.StageRef(ID, 3, 30))
    assert (harness.ready("q"), harness.ready("lost")) == (1, 2)


def test_room_is_reserved_at_staging(harness):
    """K3: a stage that does not fit is refused; a commit never fails for room."""
    harness.declare("small", max_length=3)
    stage = harness.stage("w", 1, ["small"] * 2, name="a")
    assert len(harness.publish_to("small", 2).nacks) == 1
    harness.do(c.OpenStage(ID, "w", 1, "run"))
    told = "3 of at most 3 messages, staged ones included"
    refused(errors.QueueFullError, told, harness.do, block("small"))
    harness.commit("w", 1, stage)
    assert harness.browse("small") == ["m1", "a0", "a1"]


def test_a_full_queue_of_a_transaction_names_no_batch(harness):
    """P13, K3: rows of a transaction are staged, too, but `ackq batch drop` cannot free them."""
    harness.declare("small", max_length=1)
    harness.do(c.OpenPublisher(b"t" * 16, transactional=True))
    rows = (BitMap64([1]), "", True, routes(["small"]), 1, 10, True)
    harness.do(c.TransactionBlock(b"t" * 16, b"x" * 16, *rows))
    harness.do(c.OpenStage(ID, "v", 1, "run"))
    told = "room for 1 message with 10 bytes in open"
    refused(errors.QueueFullError, told, harness.do, block("small"))


def test_a_batch_whose_queue_did_not_survive_a_restart_is_refused(harness):
    """K3, Q7: sealed stages survive a restart, but a queue that is not durable does not."""
    harness.declare("gone", durable=False)
    stage = harness.stage("w", 1, ["gone"], name="a")
    harness.restart()
    told = "for which 1 row of it had been staged"
    refused(errors.StageMismatchError, told, harness.commit, "w", 1, stage)


def test_a_journal_with_a_batch_for_a_deleted_queue_is_read(harness):
    """K3, I2: an earlier version committed the other rows; its records do so still."""
    harness.declare("gone")
    stage = harness.stage("w", 1, ["q", "gone"], name="a")
    harness.do(c.DeleteQueue("gone", force=True))
    record = records.BatchCommitted("w", 1, "run", "", 2, harness.now_us, (stage.stage_id,))
    harness.core.apply(harness.core.sequence + 1, record)
    assert harness.browse("q") == ["a0"]


def test_stages_are_kept_for_seven_days(harness):
    """K3: an abandoned stage is dropped with its room and its block."""
    harness.stage("w", 1, ["q"], name="a")
    for time_us, staged in ((7 * DAY_US - 100, 1), (200, 0)):
        harness.housekeep_after(time_us)
        assert harness.info("q").staged == staged
    assert harness.core.drain_dead_blocks() == [1]


@pytest.mark.parametrize(
    ("command", "error", "told"),
    [
        (c.OpenStage(b"?" * 16, "", 6, "run"), errors.InvalidArgumentError, "names no writer"),
        (c.OpenStage(ID, "w", 6, "run"), errors.FencedError, "exists already"),
        (c.OpenStage(b"?" * 16, "w", 4, "run"), errors.BatchOrderError, "committed batch 5"),
        (c.CommitBatch("w", 4, "run", "", ()), errors.BatchOrderError, "batch 4 is older"),
        (c.StageBlock(ID, "gone", routes(["q"]), 1, 10), errors.ExchangeNotFoundError, "'gone'"),
        (block("q", "no"), errors.UnroutableError, "key 'no'"),
        (block("q", stage_id=SEALED), errors.FencedError, "was sealed"),
        (c.SealStage(ID, 2, 20), errors.StageMismatchError, "holds 1 rows with 10 bytes"),
        (c.DropBatch(c.BatchKey("w", 6)), errors.InUseError, "being written by 1 task"),
    ],
)
def test_what_a_writer_may_not_do(harness, command, error, told):
    """K3, K4: calls after batch 5, while batch 6 has one open stage and one sealed one."""
    harness.commit("w", 5, harness.stage("w", 5, ["q"], name="a"))
    harness.stage("w", 6, ["q"], name="sealed")
    harness.do(c.OpenStage(ID, "w", 6, "run"))
    harness.do(block("q"))
    refused(error, told, harness.do, command)
    assert harness.info("q").staged == 2


# --- repetitions ---


def commit(harness, rows, run, target="one", **options):
    """A run of the writer w stages rows for a target and commits them as batch 1."""
    stage = harness.stage("w", 1, ["q"] * rows, run_id=run, name=run)
    return harness.commit("w", 1, stage, run_id=run, target=target, **options)


def test_the_runs_of_a_version_are_bounded(harness, monkeypatch):
    """K12, I6: the oldest runs are forgotten."""
    monkeypatch.setattr("ackq_broker.core.publishing.repetition._REMEMBERED_RUNS", 2)
    for run_id in ("first", "second", "third"):
        harness.commit("w", 1, run_id=run_id, execution_id="1")
    executions = harness.core._state.writers["w"].executions
    assert list(executions.items()) == [("second", "1"), ("third", "1")]


# --- several edges ---


def prepared(harness, **options):
    """A stage of batch 1 that is prepared for the edges."""
    kept = harness.stage("w", 1, ["q"], name="kept", **options)
    reply = harness.commit("w", 1, kept, prepare=True, edges=EDGES, **options)
    assert reply == c.CommittedBatch(0, False, edges=EDGES)
    return kept


def test_prepared_stages_wait_for_their_batch(harness):
    """K14: no newer run, abort, retention or restart ends them; the home may have the batch."""
    kept = prepared(harness, run_id="old")
    again = harness.decide(c.CommitBatch("w", 1, "old", "", (kept,), prepare=True, edges=EDGES))
    assert not again.records
    new = harness.stage("w", 1, ["q"], run_id="new", name="new")
    assert harness.do(c.AbortBatch("w", 1, (kept.stage_id, new.stage_id))) == 1
    harness.restart()
    harness.housekeep_after(30 * DAY_US)
    told = f"it may be committed at another of .* {EDGES}"
    refused(errors.InUseError, told, harness.do, c.DropBatch(c.BatchKey("w", 1)))
    assert harness.browse("q") == []
    assert harness.commit("w", 1, kept, run_id="new", finish=True, edges=EDGES).rows == 1
    assert harness.browse("q") == ["kept0"]
    assert harness.commit("w", 1, kept, run_id="new", finish=True, edges=EDGES).repeated


def test_a_prepared_batch_needs_its_room_once(harness):
    """K3, K14: its prepared rows or those of its next run become visible, never both."""
    harness.declare("small", max_length=3)
    kept = harness.stage("w", 1, ["small"] * 2, name="kept")
    harness.commit("w", 1, kept, prepare=True, edges=EDGES)
    harness.do(c.OpenStage(ID, "v", 1, "run"))
    refused(errors.QueueFullError, "room for 1 only", harness.do, block(*["small"] * 2))
    new = {"run_id": "new", "name": "new"}
    harness.stage("w", 1, ["small"] * 2, **new)
    more = ("w", 1, ["small"] * 2)
    told = "room for 1 only"
    refused(errors.QueueFullError, told, harness.stage, *more, run_id="new", name="more")
    harness.restart()
    assert harness.commit("w", 1, kept, run_id="new", finish=True, edges=EDGES).rows == 2
    assert (harness.browse("small"), harness.info("small").staged) == (["kept0", "kept1"], 0)


def test_a_batch_prepared_for_other_edges_is_not_committed(harness):
    """K14: one of those edges may have committed it, so a commit for others is refused."""
    prepared(harness)
    new = harness.stage("w", 1, ["q"], name="new")
    for fields in ({}, {"edges": "b:1,c:1"}, {"prepare": True, "edges": "b:1,c:1"}):
        told = f"prepared for the edges {EDGES}"
        error = refused(errors.BatchChangedError, told, harness.commit, "w", 1, new, **fields)
        assert error.fields["edges"] == EDGES
    assert harness.commit("w", 1, prepare=True) == c.CommittedBatch(0, False, edges=EDGES)


def test_one_batch_is_prepared_at_a_time(harness):
    """K14: its home may have committed it, so a later one waits for its end.

    Without rows here nothing can be lost: then a later one is prepared in its place, and an earlier
    one is refused.
    """
    prepared(harness)
    for fields in ({}, {"edges": EDGES}, {"prepare": True}, {"prepare": True, "edges": EDGES}):
        told = f"Batch 1 .* {EDGES} and is not finished: .* --force 'w' 1"
        error = refused(errors.BatchChangedError, told, harness.commit, "w", 2, **fields)
        assert error.fields["unfinished"] == "1"
        told = "Batch 0 of .* comes before batch 1"
        refused(errors.BatchOrderError, told, harness.commit, "w", 0, **fields)
    harness.do(c.DropBatch(c.BatchKey("w", 1), force=True))
    for batch in (2, 3):
        harness.commit("w", batch, prepare=True, edges=EDGES)
    told = "Batch 2 of .* comes before batch 3"
    refused(errors.BatchOrderError, told, harness.commit, "w", 2, prepare=True, edges=EDGES)
    assert harness.commit("w", 4) == c.CommittedBatch(0, False)


def test_a_dropped_stage_is_passed_over_by_keep(harness):
    """K14: an operator may force a drop; changedBatch=keep then finishes the batch without it."""
    kept = prepared(harness)
    harness.do(c.DropBatch(c.BatchKey("w", 1), force=True))
    finish = {"finish": True, "edges": EDGES}
    told = "is committed at its home, and its stage .* changedBatch=keep"
    refused(errors.StageMismatchError, told, harness.commit, "w", 1, kept, **finish)
    done = harness.commit("w", 1, kept, keep_changed=True, **finish)
    assert done == c.CommittedBatch(1, False, edges=EDGES)
    assert harness.browse("q") == []


def test_an_edge_without_rows_is_freed_by_force(harness):
    """K14: it is prepared, too, for as long; when the others are lost, an operator frees it."""
    harness.commit("w", 1, prepare=True, edges=EDGES)
    harness.housekeep_after(30 * DAY_US)
    refused(errors.BatchChangedError, r"ackq batch drop --force 'w' 1", harness.commit, "w", 1)
    refused(errors.InUseError, EDGES, harness.do, c.DropBatch(c.BatchKey("w", 1)))
    assert harness.do(c.DropBatch(c.BatchKey("w", 1), force=True)) == c.DroppedBatch(0, 0, 0)
    assert harness.commit("w", 1) == c.CommittedBatch(0, False)
