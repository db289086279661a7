"""Repetitions: a repeated batch equals the committed one, or it is refused."""

import pytest

from ackq.errors import BatchChangedError, BatchOrderError
from ackq_broker.core import commands as c
from tests.unit.core.harness import Harness


@pytest.fixture(autouse=True)
def queue(harness: Harness) -> None:
    """Declares the queue q for every test."""
    harness.declare("q")


def commit(
    harness: Harness, batch_id: int, rows: int, run: str, target: str = "one", **options: object
) -> c.CommittedBatch:
    """A run of the writer w stages rows for a target and commits them as a batch."""
    name = f"{run}{batch_id}{target}"
    stage = harness.stage("w", batch_id, ["q"] * rows, run_id=run, name=name)
    return harness.commit("w", batch_id, stage, run_id=run, target=target, **options)


def test_the_same_batch_again_is_a_repetition(harness: Harness) -> None:
    """K3: the first batch of a run, for the same target, with as many rows; also when repeated."""
    commit(harness, 0, 2, "first")
    for _ in range(2):
        assert commit(harness, 0, 2, "first") == c.CommittedBatch(2, True, "one")
        harness.restart()
    assert commit(harness, 0, 2, "second") == c.CommittedBatch(2, True, "one")
    assert commit(harness, 0, 2, "second") == c.CommittedBatch(2, True, "one")
    assert commit(harness, 1, 3, "second") == c.CommittedBatch(3, False, "one")
    assert harness.ready("q") == 5


@pytest.mark.parametrize(
    ("rows", "target", "told"),
    [
        (
            2,
            "two",
            "with 2 rows for one by run first. It was sent again with 2 rows for two by",
        ),
        (3, "one", "was sent again with 3 rows for one by run second, and nothing was written"),
        (0, "one", "was sent again with 0 rows"),
    ],
)
def test_a_batch_with_another_target_or_count_is_refused(
    harness: Harness, rows: int, target: str, told: str
) -> None:
    """K3: such a batch has other rows, which would be lost; both sides and the remedy are named."""
    commit(harness, 0, 2, "first")
    for _ in range(2):
        with pytest.raises(BatchChangedError, match=told) as caught:
            commit(harness, 0, rows, "second", target)
        assert "a checkpoint of its own" in str(caught.value)
        harness.do(c.AbortBatch("w", 0, (f"second0{target}".encode().ljust(16),)))
        harness.restart()
    assert harness.ready("q") == 2


def test_a_run_that_went_on_repeats_nothing(harness: Harness) -> None:
    """K3: a batch that a run finds committed after its first one is another query's."""
    commit(harness, 0, 2, "first")
    commit(harness, 0, 2, "copy")
    commit(harness, 1, 2, "copy")
    with pytest.raises(BatchChangedError, match="by run first, which has continued from batch 0"):
        commit(harness, 1, 2, "first")
    harness.restart()
    commit(harness, 1, 2, "copy")
    assert harness.ready("q") == 4


def test_a_changed_batch_is_kept_on_demand(harness: Harness) -> None:
    """K3: with `keep_changed` the batch counts as done; the reply has the committed one."""
    commit(harness, 0, 2, "first")
    reply = commit(harness, 0, 3, "second", "two", keep_changed=True)
    assert reply == c.CommittedBatch(2, True, "one")
    assert harness.ready("q") == 2
    assert harness.info("q").staged == 0


@pytest.mark.parametrize(("before", "again"), [("", "one"), ("one", ""), ("", "")])
def test_without_a_target_nothing_is_compared(harness: Harness, before: str, again: str) -> None:
    """K3: the record of an older version, or the call of an older client, is not compared."""
    commit(harness, 0, 2, "first", before)
    assert commit(harness, 0, 3, "second", again) == c.CommittedBatch(2, True, before)


def test_a_version_used_twice_in_a_run_is_an_error(harness: Harness) -> None:
    """K12: equal version, same run, another SQL execution: this version has been used."""
    harness.commit("w", 1, harness.stage("w", 1, ["q"], name="a"), execution_id="7")
    stage = harness.stage("w", 1, ["q"], name="b")
    with pytest.raises(BatchOrderError, match="this version has been used in this run"):
        harness.commit("w", 1, stage, execution_id="8")
    assert harness.commit("w", 1, stage, execution_id="7") == c.CommittedBatch(1, True)


def test_a_version_repeated_by_another_run_is_a_no_op(harness: Harness) -> None:
    """K12: a program that is run again after a crash writes no row twice."""
    harness.commit("w", 1, harness.stage("w", 1, ["q"], name="a"), execution_id="7")
    reply = harness.commit("w", 1, run_id="next", execution_id="0")
    assert reply == c.CommittedBatch(1, True)


def test_a_version_used_twice_is_an_error_in_every_run(harness: Harness) -> None:
    """K12: also where the first of the two writes is a repetition, and after a restart."""
    harness.commit("w", 1, harness.stage("w", 1, ["q"], name="a"), execution_id="7")
    for run_id in ("second", "third"):
        for _ in range(2):
            reply = harness.commit("w", 1, run_id=run_id, execution_id="1")
            assert reply == c.CommittedBatch(1, True)
        harness.restart()
        other = harness.stage("w", 1, ["q"], run_id=run_id, name=run_id)
        with pytest.raises(BatchOrderError, match="this version has been used in this run"):
            harness.commit("w", 1, other, run_id=run_id, execution_id="2")
    assert harness.browse("q") == ["a0"]


def test_no_run_changes_what_another_has_used(harness: Harness) -> None:
    """K12: each run is held to its own write, also one that is ending; a new version is new."""
    harness.commit("w", 1, harness.stage("w", 1, ["q"], name="a"), execution_id="7")
    harness.commit("w", 1, run_id="next", execution_id="3")
    records = len(harness.log)
    for run_id, own, other in (("run", "7", "3"), ("next", "3", "7")):
        assert harness.commit("w", 1, run_id=run_id, execution_id=own) == c.CommittedBatch(1, True)
        with pytest.raises(BatchOrderError):
            harness.commit("w", 1, run_id=run_id, execution_id=other)
    assert harness.commit("w", 1, run_id="", execution_id="") == c.CommittedBatch(1, True)
    assert len(harness.log) == records
    harness.commit("w", 2, run_id="next", execution_id="4")
    assert harness.core._state.writers["w"].executions == {"next": "4"}


def test_the_runs_of_a_version_are_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K12, I6: the oldest runs are forgotten."""
    monkeypatch.setattr("ackq_broker.core.publishing.repetition._REMEMBERED_RUNS", 2)
    harness.commit("w", 1, execution_id="7")
    for run_id in ("second", "third"):
        harness.commit("w", 1, run_id=run_id, execution_id="1")
    executions = harness.core._state.writers["w"].executions
    assert list(executions.items()) == [("second", "1"), ("third", "1")]
