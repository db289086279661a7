"""The oracle: which histories of one message are possible, with answers and without."""

from itertools import count
from types import SimpleNamespace

import pytest

from tests.crash.simulation.oracle.history import (
    NEVER,
    Hold,
    Message,
    Operation,
    QueueRules,
    Rewind,
)
from tests.crash.simulation.oracle.judge import DEAD, GONE, HOME, Judge

ORDERS = QueueRules("orders", dead="dead", limit=1)
CHANNEL, OTHER, LEASE = Hold("channel", 1), Hold("other", 1), Hold("incarnation", 1)


class History:
    """Operations one after another, each answered before the next; `ends` has the holders' ends."""

    def __init__(self, *, confirmed=True, gaps=False):
        self._instants = count(1)
        self._gaps = gaps
        self._ends = {}
        self.message = Message("m", b"m", ORDERS)
        self.message.put = self._operation("put", None, must=confirmed)

    def _operation(self, kind, what, *, must=True):
        call, ret = next(self._instants), next(self._instants)
        return Operation(kind, call, ret if must else NEVER, must, what)

    def deliver(self, hold, number, queue="orders", cause="", died_after=0, mark=-1):
        """Adds a delivery that arrived."""
        what = (queue, hold, number, cause, died_after, mark)
        self.message.operations.append(self._operation("deliver", what))
        return self

    def settle(self, hold, *outcomes, answered=True, kind="settle"):
        """Adds a settlement."""
        self.message.operations.append(self._operation(kind, (hold, *outcomes), must=answered))
        return self

    def end(self, hold):
        """Ends the holder's channel at this point."""
        self._ends[hold] = next(self._instants)
        return self

    def redrive(self):
        """Adds a redrive of all ready dead letters."""
        self.message.operations.append(self._operation("redrive", True))
        return self

    def purge(self, *, answered=True):
        """Adds a purge of the queue."""
        self.message.operations.append(self._operation("purge", "orders", must=answered))
        return self

    def rewind(self):
        """Adds a rewind of all that the lease's session retains."""
        what = Rewind(LEASE.owner, 0, 0, retains=True)
        self.message.operations.append(self._operation("rewind", what))
        return self

    def is_possible(self, place, *, put=None, count=None, mark=-1):
        """Whether the message may be in this place at the end, before a delivery of this number."""
        self.message.operations.append(self._operation("final", (place, count, mark)))
        judge = Judge(
            self.message,
            lambda hold: self._ends.get(hold, NEVER),
            gaps=self._gaps,
            leases={LEASE: SimpleNamespace(over=0, begun=0, batches={4})},
        )
        return judge.explains(put=put)


def test_what_was_confirmed_is_there():
    """P4, I4: a confirmed message is in its queue, if nothing took it from there."""
    assert History().is_possible(HOME)
    assert not History().is_possible(GONE)
    assert not History().is_possible(DEAD)


def test_what_has_no_answer_may_be_there():
    """P8, P10: an unanswered publish may be in its queue or not; a delivery proves that it was."""
    assert History(confirmed=False).is_possible(HOME)
    assert History(confirmed=False).is_possible(GONE)
    assert not History(confirmed=False).is_possible(HOME, put=False)
    proven = History(confirmed=False).deliver(CHANNEL, 1).end(CHANNEL)
    assert not proven.is_possible(GONE)


def test_what_was_accepted_never_comes_again():
    """C4, C15: an answered accept ends a message; an unanswered one may."""
    accepted = History().deliver(CHANNEL, 1).settle(CHANNEL, "accepted")
    assert accepted.is_possible(GONE)
    again = History().deliver(CHANNEL, 1).settle(CHANNEL, "accepted").end(CHANNEL)
    assert not again.deliver(OTHER, 2).settle(OTHER, "accepted").is_possible(GONE)
    unanswered = History().deliver(CHANNEL, 1).settle(CHANNEL, "accepted", answered=False)
    unanswered.end(CHANNEL).deliver(OTHER, 2).settle(OTHER, "accepted")
    assert unanswered.is_possible(GONE)


def test_nobody_else_gets_what_is_held():
    """C12: a message is redelivered only when its holder may have ended."""
    held = History().deliver(CHANNEL, 1).deliver(OTHER, 2).settle(OTHER, "accepted")
    assert not held.is_possible(GONE)
    ended = History().deliver(CHANNEL, 1).end(CHANNEL).deliver(OTHER, 2)
    assert ended.settle(OTHER, "accepted").is_possible(GONE)


@pytest.mark.parametrize(("second", "gaps", "possible"), [(2, False, True), (1, False, False)])
def test_deliveries_are_counted(second, gaps, possible):
    """C7: the next delivery has the next count; one that no client saw counts, too."""
    history = History(gaps=gaps).deliver(CHANNEL, 1).settle(CHANNEL, "released")
    assert history.deliver(OTHER, second).end(OTHER).is_possible(HOME) is possible


def test_a_delivery_that_nobody_saw():
    """C7: where deliveries may be lost on the way, counts skip them, and never go back."""
    assert not History().deliver(CHANNEL, 2).end(CHANNEL).is_possible(HOME)
    assert History(gaps=True).deliver(CHANNEL, 2).end(CHANNEL).is_possible(HOME)
    back = History(gaps=True).deliver(CHANNEL, 2).end(CHANNEL).deliver(OTHER, 2).end(OTHER)
    assert not back.is_possible(HOME)


def test_the_count_at_the_end():
    """C7: a message left at the end counts its ended deliveries, and may count unseen ones."""

    def released(*, gaps=False):
        return History(gaps=gaps).deliver(CHANNEL, 1).settle(CHANNEL, "released")

    assert released().is_possible(HOME, count=2)
    assert not released().is_possible(HOME, count=1)
    assert not released().is_possible(HOME, count=3)
    assert released(gaps=True).is_possible(HOME, count=3)
    assert not released(gaps=True).is_possible(HOME, count=1)


def test_the_delivery_limit():
    """C13: one FAILED too many dead-letters a message, and not one before."""

    def failed(times):
        history = History()
        for number in range(1, times + 1):
            hold = Hold("channel", number)
            history.deliver(hold, number).settle(hold, "failed")
        return history

    assert failed(1).is_possible(HOME)
    assert not failed(1).is_possible(DEAD)
    assert failed(2).is_possible(DEAD)
    assert not failed(2).is_possible(HOME)
    letter = failed(2).deliver(OTHER, 1, "dead", "delivery_limit", 2).end(OTHER)
    assert letter.is_possible(DEAD)
    assert not failed(2).deliver(OTHER, 1, "dead", "rejected", 2).end(OTHER).is_possible(DEAD)


def test_a_dead_letter_that_is_redriven():
    """Q6: a redriven dead letter is in its original queue again, and counts from the start."""
    redriven = History().deliver(CHANNEL, 1).settle(CHANNEL, "rejected").redrive()
    assert redriven.is_possible(HOME)
    redriven = History().deliver(CHANNEL, 1).settle(CHANNEL, "rejected").redrive()
    assert redriven.deliver(OTHER, 1).settle(OTHER, "accepted").is_possible(GONE)


def test_a_purge():
    """Q4: a ready message is purged, a held one stays."""
    assert History().purge().is_possible(GONE)
    assert not History().purge().is_possible(HOME)
    assert History().purge(answered=False).is_possible(HOME)
    assert History().deliver(CHANNEL, 1).purge().end(CHANNEL).is_possible(HOME)


def test_a_rewind():
    """S14: an accepted message comes again once per rewind, with the batch that accepted it."""

    def rewound():
        return History().deliver(LEASE, 1).settle(LEASE, "accepted").rewind()

    assert rewound().is_possible(HOME, count=2, mark=4)
    assert not rewound().is_possible(GONE)
    assert rewound().rewind().is_possible(HOME, count=2, mark=4)
    assert rewound().deliver(OTHER, 2, mark=4).end(OTHER).is_possible(HOME)
    assert not rewound().deliver(OTHER, 2).end(OTHER).is_possible(HOME)
    assert not History().rewind().is_possible(GONE)
    assert rewound().purge().is_possible(GONE)


def test_a_holder_that_nobody_saw():
    """Q4, C7: an unseen holder that one purge passed over may be the one the next passed over."""
    assert History(gaps=True).purge().purge().is_possible(HOME, count=2)
    assert History(gaps=True).purge().purge().is_possible(HOME, count=3)
    assert not History(gaps=True).purge().purge().is_possible(HOME, count=1)


def test_one_of_several_outcomes():
    """S6: where a settle call has no answer, either outcome explains what follows."""
    for place in (GONE, DEAD):
        history = History().deliver(CHANNEL, 1).settle(CHANNEL, "accepted", "rejected")
        assert history.is_possible(place)


def test_what_an_operator_settles():
    """S8: a message that an operator settles in the lease is accepted by no later accept."""
    lease = Hold("incarnation", 1)
    settled = History().deliver(lease, 1).settle(lease, "released", kind="operate")
    assert settled.is_possible(HOME)
    for place, possible in ((HOME, True), (GONE, False)):
        accepted = History().deliver(lease, 1).settle(lease, "released", kind="operate")
        accepted.settle(lease, "accepted", kind="operate")
        assert accepted.is_possible(place) is possible
    twice = History().deliver(lease, 1).settle(lease, "rejected", kind="operate")
    assert not twice.settle(lease, "accepted", kind="operate").is_possible(GONE)


def test_a_lease_that_timed_out():
    """S5: a timed-out lease's accept takes ready messages, and none that others have or had."""
    lease = Hold("incarnation", 1)

    def timed_out():
        return History().deliver(lease, 1).end(lease)

    def accept(history):
        return history.settle(lease, "accepted", kind="resume")

    assert accept(timed_out()).is_possible(GONE)
    assert not accept(timed_out()).is_possible(HOME)
    held = accept(timed_out().deliver(OTHER, 2)).settle(OTHER, "rejected")
    assert held.is_possible(DEAD)
    assert not accept(timed_out().deliver(OTHER, 2)).settle(OTHER, "rejected").is_possible(GONE)
