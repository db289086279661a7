"""A batch for several edges is visible once and whole, wherever its attempts ended (K14)."""

from itertools import product

import pytest

from ackq.errors import AckqError, BatchChangedError
from ackq.spark.sink import edges
from ackq_broker.core import commands as c
from tests.model.sharing import Attempt, Died, Sink, calls, flaw

# The same number of rows in all, distributed otherwise.
FIRST, SECOND, THIRD = {"a": 1, "b": 6, "c": 2}, {"a": 4, "b": 5, "c": 0}, {"a": 0, "b": 2, "c": 7}


@pytest.fixture(autouse=True)
def _in_order(monkeypatch):
    monkeypatch.setattr(edges, "_each", lambda names, call: [call(name) for name in list(names)])


def endings(rows):
    """Every end of an attempt: before its first call, or after a call, heard or not."""
    for ends, heard, aborts in product(range(calls(Attempt(rows)) + 1), *[(True, False)] * 2):
        if ends or heard:
            yield Attempt(rows, ends, heard, aborts)


def explore(kind, first=FIRST, second=SECOND, third=THIRD):
    """Returns the number of histories of three attempts, and the first flaw with its history."""
    histories = 0
    for one, two in product(endings(first), endings(second)):
        histories += 1
        sink = kind()
        attempts = (one, two, Attempt(third))
        errors = [sink.run(each, f"run {number}") for number, each in enumerate(attempts)]
        wrong = flaw(sink, attempts) if errors[-1] is None else f"refused: {errors[-1]}"
        if not wrong and sink.staged():
            wrong = "stages are left"
        if not wrong and any(isinstance(each, Died) is False for each in errors[:2] if each):
            wrong = f"refused: {errors}"
        if wrong:
            return histories, f"{wrong}; {attempts}"
    return histories, ""


def test_a_batch_is_visible_once_and_whole():
    """K14: two attempts end at any call, a third goes through with other rows."""
    histories, wrong = explore(Sink)
    assert not wrong, wrong
    assert histories == len(list(endings(FIRST))) ** 2


@pytest.mark.parametrize(
    "other", [{"a": 9, "b": 0}, {"b": 9}, {"a": 1, "b": 6, "c": 2, "d": 0}, {"d": 9}]
)
def test_edges_change_between_batches_only(other):
    """K14: an attempt for other edges finishes the batch as committed, or is refused by name."""
    for one in endings(FIRST):
        sink = Sink()
        sink.run(one, "run 1")
        error = sink.run(Attempt(other), "run 2")
        if error is None and set(other) & set(FIRST):
            assert flaw(sink, (one, Attempt(other))) == "", one
        elif error is not None:
            assert "prepared for the edges a,b,c" in str(error), one
            assert sink.run(Attempt(SECOND), "run 3") is None
            assert flaw(sink, (one, Attempt(SECOND))) == "", one
        # The next batch may have other edges.
        assert sink.run(Attempt(other), "run 4", batch=1) is None


@pytest.mark.parametrize("before", [{"a": 4, "b": 5}, {"a": 9}])
@pytest.mark.parametrize("other", [{"a": 9}, {"a": 0, "c": 9}, {"a": 2, "b": 3, "c": 4}])
def test_a_batch_with_other_rows_is_refused_for_other_edges_too(before, other):
    """K3, K14: as for the same edges: a copied checkpoint would lose its rows without an error."""
    sink = Sink()
    assert sink.run(Attempt(before), "run 1") is None
    assert sink.run(Attempt(other), "run 2") is None
    changed = sink.run(Attempt({**other, "a": 3}), "run 3")
    told = "committed before, with 9 rows for q by run run 1. It was sent again with"
    assert isinstance(changed, BatchChangedError)
    assert told in str(changed)
    assert sink.visible() == before


def test_a_run_that_was_replaced_changes_nothing():
    """K14: a driver that was thought dead commits after another run has, or at once with it."""
    for one in endings(FIRST):
        sink = Sink()
        sink.run(one, "run 1")
        assert sink.run(Attempt(SECOND), "run 2") is None
        before = sink.visible()
        sink.run(Attempt(FIRST), "run 1")
        assert sink.visible() == before


@pytest.mark.parametrize("other", [{"a": 70, "b": 10, "c": 20}, {"a": 0, "b": 90}, {"b": 90}])
def test_the_next_batch_finishes_an_unfinished_one(other):
    """K14: a batch that nobody runs again is visible whole or not at all, and the next one whole.

    As for a batch write whose `txnVersion` goes on after a failure. At an edge that the next batch
    does not name the rows may stay staged.
    """
    home = edges.home_of("query", "a,b,c")
    for one in endings(FIRST):
        sink = Sink()
        sink.run(one, "run 1")
        whole = FIRST if home in sink.visible() else {}
        assert sink.run(Attempt(other), "run 2", batch=1) is None, one
        visible = sink.visible()
        at_named = {name: rows for name, rows in visible.items() if name in other}
        assert at_named == together({name: whole.get(name, 0) for name in other}, other), one
        assert not whole or sink.staged() + sum(visible.values()) == 9 + sum(other.values())


@pytest.mark.parametrize("call", range(1, calls(Attempt(FIRST)) + 1))
def test_a_slow_driver_and_the_next_batch(call):
    """K14: the next batch is written while a driver is before a call of its commit."""
    other = {"a": 70, "b": 10, "c": 20}

    class Slow(Sink):
        calls = 0

        def commit(self, *arguments):
            self.calls += 1
            if self.calls == call:
                assert self.run(Attempt(other), "run 2", batch=1) is None
            return super().commit(*arguments)

    sink = Slow()
    assert isinstance(sink.run(Attempt(FIRST), "run 1"), AckqError)
    committed = call > 6  # three looks, two prepare, and the commit
    assert sink.visible() == together(FIRST if committed else {}, other)
    assert not sink.staged()


def together(*batches):
    """The rows of several batches at each edge that has some."""
    rows = {name: sum(each.get(name, 0) for each in batches) for name in FIRST}
    return {name: number for name, number in rows.items() if number}


def test_a_queue_that_was_deleted_does_not_hold_the_batch():
    """K14: once the home has the batch, rows for a deleted queue are gone with it."""
    sink = Sink()
    home = edges.home_of("query", "a,b,c")
    sink.run(Attempt(FIRST, 6), "run 1")  # three looks, two prepare, and the commit
    away = next(name for name in FIRST if name != home)
    sink.decide(away, c.DeleteQueue("q", force=True))
    sink.decide(away, c.DeclareQueue("q", c.QueueProperties()))
    assert sink.run(Attempt(FIRST), "run 2") is None
    expected = {name: rows for name, rows in FIRST.items() if name != away}
    assert sink.visible() == expected


def test_two_names_of_one_broker_are_refused():
    """K14: a broker that is home and another edge at once would drop what it has prepared."""

    class Twice(Sink):
        def commit(self, _name, stages, run, fields):
            answer = super().commit("a", stages, run, fields)
            if fields["prepare"]:
                answer.broker = b"one"
            return answer

    sink = Twice()
    error = sink.run(Attempt({"a": 3, "b": 0}), "run 1")
    assert "a and b are one broker" in str(error)
    assert sink.visible() == {}


class NothingIsPrepared(Sink):
    """Stages are kept by no edge: a newer run drops those of an older one."""

    def commit(self, name, stages, run, fields):
        if fields["prepare"]:
            fields = {**fields, "edges": ""}
        return super().commit(name, stages, run, fields)


class OwnStagesAreFinished(Sink):
    """The home's record is not asked: each attempt makes its own stages visible at the others."""

    def commit(self, name, stages, run, fields):
        answer = super().commit(name, stages, run, dict(fields))
        if fields.get("others") and answer.repeated:
            del answer.others[:]
            for each, named in fields["others"].items():
                own = answer.others.add(endpoint=each)
                for stage in named:
                    own.stages.add(**stage._asdict())
        return answer


class AnAbortDropsAll(Sink):
    """An abort drops prepared stages, too."""

    def decide(self, name, command):
        if isinstance(command, c.AbortBatch):
            for stage in self.core(name)._state.stages.values():
                stage.prepared = False
        return super().decide(name, command)


@pytest.mark.parametrize("kind", [NothingIsPrepared, OwnStagesAreFinished, AnAbortDropsAll])
def test_without_a_rule_a_batch_is_torn(kind):
    """K14: without one of its rules the exploration finds a batch that is lost or mixed."""
    histories, wrong = explore(kind)
    print(f"{kind.__name__}: {histories} histories. {wrong}")
    assert wrong
