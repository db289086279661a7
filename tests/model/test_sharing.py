"""A batch for several edges is visible once and whole, wherever its attempts ended (K14)."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Condition

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


@pytest.mark.parametrize("again", [{"a": 9}, {"a": 5, "c": 4}, {"a": 2, "c": 3, "d": 4}])
def test_the_next_batch_drops_what_its_home_did_not_commit(again):
    """K14: an edge prepared an attempt, and the batch was then committed for edges without it."""
    sink = Sink()
    sink.run(Attempt({"a": 3, "b": 6}, 3), "run 1")  # two looks, and b prepares
    assert edges.home_of("query", "a,b") == "a"
    assert sink.run(Attempt(again), "run 2") is None
    assert sink.run(Attempt({"a": 10, "b": 20}), "run 3", batch=1) is None
    assert sink.visible() == together(again, {"a": 10, "b": 20})
    assert not sink.staged()


def test_an_edge_that_its_home_left_behind_is_refused():
    """K14: a home with a later batch for other edges knows nothing of the earlier one any more."""
    assert [edges.home_of("query", each) for each in ("b,c", "a,c")] == ["c", "a"]
    sink = Sink()
    sink.run(Attempt({"b": 3, "c": 3}, 4), "run 1")  # two looks, b prepares, and c commits
    for batch in (1, 2):
        assert sink.run(Attempt({"c": 10**batch}), "run 2", batch=batch) is None
    told = r"the edges b,c, and c, .* has a later batch .*: `ackq batch drop --force 'query' 0`"
    error = sink.run(Attempt({"b": 100, "c": 0}), "run 3", batch=3)
    assert isinstance(error, BatchChangedError)
    assert re.search(told, str(error))
    sink.decide("b", c.DropBatch(c.BatchKey("query", 0), force=True))
    assert sink.run(Attempt({"b": 1000, "c": 0}), "run 4", batch=3) is None
    assert sink.visible() == {"b": 1000, "c": 113}


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


@pytest.mark.parametrize(
    ("one", "other"),
    [(FIRST, {"a": 70, "b": 10, "c": 20}), (THIRD, {"a": 100, "b": 0, "c": 0})],
    ids=["rows at all edges", "rows where the other has none"],
)
def test_two_drivers_in_turns(one, other):
    """K14: drivers of two batches give way to each other before any two calls, and before any one.

    At the end a third batch is written: each batch is visible whole, or not at all and refused.
    """
    last = {"a": 1000, "b": 1000, "c": 1000}
    numbers = range(1, calls(Attempt(FIRST)) + 1)
    for stop, *stops in product(numbers, repeat=3):
        sink = InTurns({"run 1": stops, "run 2": [stop]})
        first, second = sink.both(Attempt(one), Attempt(other))
        assert sink.run(Attempt(last), "run 3", batch=2) is None
        taken = [rows for rows, error in ((one, first), (other, second)) if error is None]
        left = [rows for rows in (one, other) if rows not in taken]
        possible = [together(*taken, *some, last) for some in ([], left, left[:1], left[1:])]
        assert sink.visible() in possible, (stops, stop)
        assert not sink.staged(), (stops, stop)


class InTurns(Sink):
    """Two drivers, one of which runs at a time: each gives way before calls by number."""

    def __init__(self, stops):
        super().__init__()
        self._stops = stops
        self._made = dict.fromkeys(stops, 0)
        self._turn, self._changed = "run 1", Condition()

    def both(self, first, second):
        """Runs an attempt of batch 0 and one of batch 1; returns their errors, or None."""
        with ThreadPoolExecutor(2) as pool:
            ended = [
                pool.submit(self._drive, attempt, run, batch)
                for batch, (run, attempt) in enumerate({"run 1": first, "run 2": second}.items())
            ]
        return [each.result() for each in ended]

    def _drive(self, attempt, run, batch):
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == run, 60)
            error = self.run(attempt, run, batch)
            del self._made[run]
            self._give_way()
        return error

    def commit(self, name, stages, run, fields):
        if run in self._made:
            self._made[run] += 1
            if self._made[run] in self._stops[run]:
                self._give_way()
                assert self._changed.wait_for(lambda: self._turn == run, 60)
        return super().commit(name, stages, run, fields)

    def _give_way(self):
        self._turn = next((run for run in self._made if run != self._turn), self._turn)
        self._changed.notify_all()


def together(*batches):
    """The rows of several batches at each edge that has some."""
    rows = {name: sum(each.get(name, 0) for each in batches) for name in "abcd"}
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
