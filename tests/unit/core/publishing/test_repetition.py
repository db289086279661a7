"""Repetitions of a batch (K3, K12): versions used twice; copies of checkpoints: tests/model."""

import pytest

from ackq.errors import BatchOrderError
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
