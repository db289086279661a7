"""Writer batches: staged rows are invisible, and become visible together, once."""

import pytest
from pyroaring import BitMap64

from ackq.errors import (
    BatchChangedError,
    BatchOrderError,
    ExchangeNotFoundError,
    FencedError,
    InUseError,
    InvalidArgumentError,
    LimitError,
    QueueFullError,
    QueueNotFoundError,
    StageMismatchError,
    UnroutableError,
)
from ackq_broker.core import commands as c
from ackq_broker.core import records, views
from tests.unit.core.harness import DAY_US, Harness, routes

ID, SEALED = b"stage".ljust(16), b"sealed".ljust(16)


@pytest.fixture(autouse=True)
def queue(harness: Harness) -> None:
    """Declares the queue q for every test."""
    harness.declare("q")


def staged(harness: Harness) -> int:
    return views.list_queues(harness.core.state, "q")[0].staged


def test_a_commit_drops_what_it_did_not_name(harness: Harness) -> None:
    """K3: unnamed stages of this batch and earlier ones are dropped; those of later ones stay."""
    loser = harness.stage("w", 1, ["q"], name="loser")
    winner = harness.stage("w", 2, ["q"], name="winner")
    late = harness.stage("w", 2, ["q"], name="late")
    ahead = harness.stage("w", 3, ["q"], name="ahead")
    harness.commit("w", 2, winner)
    assert staged(harness) == 1
    assert len(harness.core.drain_dead_blocks()) == 2
    for stage in (loser, late):
        with pytest.raises(FencedError, match="takes no more rows"):
            harness.do(c.StageBlock(stage.stage_id, "", routes(["q"]), 1, 10))
    harness.commit("w", 3, ahead)
    assert harness.browse("q") == ["winner0", "ahead0"]


def test_a_newer_run_drops_the_stages_of_older_ones(harness: Harness) -> None:
    """K3: older runs lose their stages when a newer run opens its first stage."""
    old = harness.stage("w", 1, ["q"], run_id="old", name="old")
    harness.stage("v", 1, ["q"], run_id="old", name="other")
    new = harness.stage("w", 1, ["q"], run_id="new", name="new")
    with pytest.raises(StageMismatchError):
        harness.commit("w", 1, old, run_id="old")
    assert staged(harness) == 2
    harness.commit("w", 1, new, run_id="new")
    assert harness.browse("q") == ["new0"]


def test_a_task_of_an_older_run_cannot_drop_the_newer_one_s_stages(harness: Harness) -> None:
    """K3: a run that was seen before is not a newer one, however late its tasks end."""
    harness.stage("w", 1, ["q"], run_id="old", name="old")
    new = harness.stage("w", 1, ["q"], run_id="new", name="new")
    harness.stage("w", 1, ["q"], run_id="old", name="zombie")
    harness.commit("w", 1, new, run_id="new")
    assert harness.browse("q") == ["new0"]


def test_the_number_of_stages_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: a stage over the limit is refused with the limit."""
    monkeypatch.setattr("ackq_broker.core.publishing.writer_batches.MAX_STAGES", 1)
    harness.stage("w", 1, ["q"], name="a")
    with pytest.raises(LimitError, match="1 stages"):
        harness.do(c.OpenStage(ID, "w", 1, "run"))


def test_unroutable_rows_of_an_optional_stage_are_dropped(harness: Harness) -> None:
    """P7: they count as rows of the stage, for its writer has counted them."""
    harness.do(c.OpenStage(ID, "w", 1, "run", mandatory=False))
    assert harness.do(c.StageBlock(ID, "", routes(["nowhere"]), 1, 10)) == c.StagedBlock(1, None)
    assert harness.do(c.StageBlock(ID, "", routes(["q", "nowhere"]), 2, 20)).block_id == 1
    harness.do(c.SealStage(ID, 3, 30))
    assert harness.commit("w", 1, c.StageRef(ID, 3, 30)) == c.CommittedBatch(3, False)
    assert harness.ready("q") == 1


def test_unroutable_rows_go_to_their_queue(harness: Harness) -> None:
    """P7: with an `unroutable_queue` no row is refused; each row is in a queue once."""
    harness.declare("lost")
    harness.do(c.OpenStage(ID, "w", 1, "run"))
    block = c.StageBlock(ID, "", routes(["q", "nowhere", "lost"]), 3, 30, unroutable_queue="lost")
    assert harness.do(block).rows == 3
    with pytest.raises(QueueNotFoundError, match="'gone'"):
        harness.do(c.StageBlock(ID, "", routes(["no"]), 1, 10, unroutable_queue="gone"))
    harness.do(c.SealStage(ID, 3, 30))
    harness.commit("w", 1, c.StageRef(ID, 3, 30))
    assert (harness.ready("q"), harness.ready("lost")) == (1, 2)


def test_room_is_reserved_at_staging(harness: Harness) -> None:
    """K3: a stage that does not fit is refused; a commit never fails for room."""
    harness.declare("small", max_length=3)
    stage = harness.stage("w", 1, ["small"] * 2, name="a")
    assert len(harness.publish_to("small", 2).nacks) == 1
    harness.do(c.OpenStage(ID, "w", 1, "run"))
    with pytest.raises(QueueFullError, match="3 of at most 3 messages, staged ones included"):
        harness.do(c.StageBlock(ID, "", routes(["small"]), 1, 10))
    harness.commit("w", 1, stage)
    assert harness.browse("small") == ["m1", "a0", "a1"]


def test_a_batch_whose_queue_did_not_survive_a_restart_is_refused(harness: Harness) -> None:
    """K3, Q7: sealed stages survive a restart, but a queue that is not durable does not."""
    harness.declare("gone", durable=False)
    stage = harness.stage("w", 1, ["gone"], name="a")
    harness.restart()
    with pytest.raises(StageMismatchError, match="for which 1 row of it had been staged"):
        harness.commit("w", 1, stage)


def test_a_journal_with_a_batch_for_a_deleted_queue_is_read(harness: Harness) -> None:
    """K3, I2: an earlier version committed the other rows; its records do so still."""
    harness.declare("gone")
    stage = harness.stage("w", 1, ["q", "gone"], name="a")
    harness.do(c.DeleteQueue("gone", force=True))
    record = records.BatchCommitted("w", 1, "run", "", 2, harness.now_us, (stage.stage_id,))
    harness.core.apply(harness.core.sequence + 1, record)
    assert harness.browse("q") == ["a0"]


def test_stages_are_kept_for_seven_days(harness: Harness) -> None:
    """K3: an abandoned stage is dropped with its room and its block."""
    harness.stage("w", 1, ["q"], name="a")
    harness.housekeep_after(7 * DAY_US - 100)
    assert staged(harness) == 1
    harness.housekeep_after(200)
    assert staged(harness) == 0
    assert harness.core.drain_dead_blocks() == [1]


def test_a_full_queue_of_a_transaction_names_no_batch(harness: Harness) -> None:
    """P13, K3: rows of a transaction are staged, too, but `ackq batch drop` cannot free them."""
    harness.declare("small", max_length=1)
    harness.do(c.OpenPublisher(b"t" * 16, transactional=True))
    rows = ("", True, routes(["small"]), 1, 10, True)
    block = c.TransactionBlock(b"t" * 16, b"x" * 16, BitMap64([1]), *rows)
    harness.do(block)
    harness.do(c.OpenStage(ID, "v", 1, "run"))
    with pytest.raises(QueueFullError, match="room for 1 message with 10 bytes in open"):
        harness.do(c.StageBlock(ID, "", routes(["small"]), 1, 10))


@pytest.mark.parametrize(
    ("refused", "error", "told"),
    [
        (c.OpenStage(b"?" * 16, "", 6, "run"), InvalidArgumentError, "names no writer"),
        (c.OpenStage(ID, "w", 6, "run"), FencedError, "exists already"),
        (c.OpenStage(b"?" * 16, "w", 4, "run"), BatchOrderError, "committed batch 5"),
        (c.CommitBatch("w", 4, "run", "", ()), BatchOrderError, "batch 4 is older"),
        (c.StageBlock(ID, "gone", routes(["q"]), 1, 10), ExchangeNotFoundError, "'gone'"),
        (c.StageBlock(ID, "", routes(["q", "no"]), 2, 20), UnroutableError, "key 'no'"),
        (c.StageBlock(SEALED, "", routes(["q"]), 1, 10), FencedError, "was sealed"),
        (c.SealStage(ID, 2, 20), StageMismatchError, "holds 1 rows with 10 bytes"),
        (c.DropBatch(c.BatchKey("w", 6)), InUseError, "being written by 1 task"),
    ],
)
def test_what_a_writer_may_not_do(
    harness: Harness, refused: c.Command, error: type[Exception], told: str
) -> None:
    """K3, K4: calls after batch 5, while batch 6 has one open stage and one sealed one."""
    harness.commit("w", 5, harness.stage("w", 5, ["q"], name="a"))
    harness.stage("w", 6, ["q"], name="sealed")
    harness.do(c.OpenStage(ID, "w", 6, "run"))
    harness.do(c.StageBlock(ID, "", routes(["q"]), 1, 10))
    with pytest.raises(error, match=told):
        harness.do(refused)
    assert staged(harness) == 2


EDGES = "a:1,b:1"


def test_prepared_stages_wait_for_their_batch(harness: Harness) -> None:
    """K14: no newer run, abort, retention or restart ends them; the home may have the batch."""
    kept = harness.stage("w", 1, ["q"], run_id="old", name="kept")
    assert harness.commit("w", 1, kept, run_id="old", prepare=True, edges=EDGES).edges == EDGES
    again = harness.decide(c.CommitBatch("w", 1, "old", "", (kept,), prepare=True, edges=EDGES))
    assert not again.records
    new = harness.stage("w", 1, ["q"], run_id="new", name="new")
    assert harness.do(c.AbortBatch("w", 1, (kept.stage_id, new.stage_id))) == 1
    harness.restart()
    harness.housekeep_after(30 * DAY_US)
    with pytest.raises(InUseError, match=f"it may be committed at another of .* {EDGES}"):
        harness.do(c.DropBatch(c.BatchKey("w", 1)))
    assert harness.browse("q") == []
    assert harness.commit("w", 1, kept, run_id="new", finish=True, edges=EDGES).rows == 1
    assert harness.browse("q") == ["kept0"]
    assert harness.commit("w", 1, kept, run_id="new", finish=True, edges=EDGES).repeated


def test_a_batch_prepared_for_other_edges_is_not_committed(harness: Harness) -> None:
    """K14: one of those edges may have committed it, so a commit for others is refused."""
    kept = harness.stage("w", 1, ["q"], name="kept")
    harness.commit("w", 1, kept, prepare=True, edges=EDGES)
    new = harness.stage("w", 1, ["q"], name="new")
    for fields in ({}, {"edges": "b:1,c:1"}, {"prepare": True, "edges": "b:1,c:1"}):
        with pytest.raises(BatchChangedError, match=f"prepared for the edges {EDGES}") as caught:
            harness.commit("w", 1, new, **fields)
        assert caught.value.fields["edges"] == EDGES
    assert harness.commit("w", 1, prepare=True) == c.CommittedBatch(0, False, edges=EDGES)
    assert harness.commit("w", 2, harness.stage("w", 2, ["q"], name="next")).rows == 1


def test_the_home_records_the_stages_of_all_edges(harness: Harness) -> None:
    """K14: every later commit of the batch, and a look, is answered by the record."""
    mine, theirs = harness.stage("w", 1, ["q"], name="mine"), c.StageRef(b"t" * 16, 7, 70)
    others = (c.EdgeStages("b:1", (theirs,)),)
    first = harness.commit("w", 1, mine, edges=EDGES, others=others, target="t")
    assert first == c.CommittedBatch(8, False, "t", EDGES, others)
    known = first._replace(repeated=True)
    again = (c.EdgeStages("b:1", (c.StageRef(b"u" * 16, 8, 80),)),)
    assert harness.commit("w", 1, run_id="new", edges=EDGES, others=again, target="t") == known
    assert harness.commit("w", 1, prepare=True) == known
    # Other edges: what they find is not theirs to judge.
    assert harness.commit("w", 1, run_id="new", edges="a:1", target="t") == known
    with pytest.raises(BatchChangedError, match="8 rows for t by run run"):
        harness.commit("w", 1, run_id="newer", edges=EDGES, target="t")


def test_a_dropped_stage_is_passed_over_by_keep(harness: Harness) -> None:
    """K14: an operator may force a drop; changedBatch=keep then finishes the batch without it."""
    kept = harness.stage("w", 1, ["q"], name="kept")
    harness.commit("w", 1, kept, prepare=True, edges=EDGES)
    harness.do(c.DropBatch(c.BatchKey("w", 1), force=True))
    with pytest.raises(StageMismatchError, match="does not exist"):
        harness.commit("w", 1, kept, finish=True, edges=EDGES)
    done = harness.commit("w", 1, kept, finish=True, edges=EDGES, keep_changed=True)
    assert done == c.CommittedBatch(1, False, edges=EDGES)
    assert harness.browse("q") == []


def test_an_edge_without_rows_is_freed_by_force(harness: Harness) -> None:
    """K14: it is prepared, too; when the other edges are lost, an operator lets the batch run."""
    harness.commit("w", 1, prepare=True, edges=EDGES)
    with pytest.raises(BatchChangedError, match=r"ackq batch drop --force 'w' 1"):
        harness.commit("w", 1)
    with pytest.raises(InUseError, match=EDGES):
        harness.do(c.DropBatch(c.BatchKey("w", 1)))
    assert harness.do(c.DropBatch(c.BatchKey("w", 1), force=True)) == c.DroppedBatch(0, 0, 0)
    assert harness.commit("w", 1) == c.CommittedBatch(0, False)
