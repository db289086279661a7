"""The oracle: which histories of one message are impossible, with answers and without.

That it finds nothing wrong in what a broker does, the simulated worlds ask.
"""

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


def held():
    """A message that was delivered on a channel."""
    return History().deliver(CHANNEL, 1)


def failed(times):
    """A message that failed so often."""
    history = History()
    for number in range(1, times + 1):
        hold = Hold("channel", number)
        history.deliver(hold, number).settle(hold, "failed")
    return history


def leased():
    """A message that was delivered in a lease."""
    return History().deliver(LEASE, 1)


def rewound():
    """A message that a session accepted, and that was rewound."""
    return leased().settle(LEASE, "accepted").rewind()


def taken(history, number=2):
    """The same, then accepted by another consumer."""
    return history.deliver(OTHER, number).settle(OTHER, "accepted")


def test_what_was_confirmed_is_there():
    """P4, P8, P10, I4: a confirmed or delivered message is in its queue, if nothing took it."""
    assert not History().is_possible(GONE)
    assert not History().is_possible(DEAD)
    assert not History(confirmed=False).is_possible(HOME, put=False)
    proven = History(confirmed=False).deliver(CHANNEL, 1).end(CHANNEL)
    assert not proven.is_possible(GONE)


def test_what_was_accepted_never_comes_again():
    """C4, C12, C15: an accepted message is not redelivered, and a held one to nobody else."""
    again = taken(held().settle(CHANNEL, "accepted").end(CHANNEL))
    assert not again.is_possible(GONE)
    unanswered = taken(held().settle(CHANNEL, "accepted", answered=False).end(CHANNEL))
    assert unanswered.is_possible(GONE)
    assert not taken(held()).is_possible(GONE)
    assert taken(held().end(CHANNEL)).is_possible(GONE)


def test_deliveries_are_counted():
    """C7: the next delivery has the next count; counts only skip deliveries that were lost."""
    again = held().settle(CHANNEL, "released").deliver(OTHER, 1).end(OTHER)
    assert not again.is_possible(HOME)
    assert not History().deliver(CHANNEL, 2).end(CHANNEL).is_possible(HOME)
    assert History(gaps=True).deliver(CHANNEL, 2).end(CHANNEL).is_possible(HOME)
    back = History(gaps=True).deliver(CHANNEL, 2).end(CHANNEL).deliver(OTHER, 2).end(OTHER)
    assert not back.is_possible(HOME)


@pytest.mark.parametrize(
    ("gaps", "count", "possible"),
    [(False, 2, True), (False, 1, False), (False, 3, False), (True, 3, True), (True, 1, False)],
)
def test_the_count_at_the_end(gaps, count, possible):
    """C7: a message left at the end counts its ended deliveries, and may count unseen ones."""
    released = History(gaps=gaps).deliver(CHANNEL, 1).settle(CHANNEL, "released")
    assert released.is_possible(HOME, count=count) is possible


def test_the_delivery_limit():
    """C13: one FAILED too many dead-letters a message, and not one before."""
    assert not failed(1).is_possible(DEAD)
    assert not failed(2).is_possible(HOME)
    letter = failed(2).deliver(OTHER, 1, "dead", "delivery_limit", 2).end(OTHER)
    assert letter.is_possible(DEAD)
    assert not failed(2).deliver(OTHER, 1, "dead", "rejected", 2).end(OTHER).is_possible(DEAD)


def test_a_redrive_and_a_purge():
    """Q4, Q6: a redriven dead letter counts from the start; a ready message is purged."""
    redriven = held().settle(CHANNEL, "rejected").redrive()
    assert taken(redriven, 1).is_possible(GONE)
    assert not History().purge().is_possible(HOME)
    # An unseen holder that one purge passed over may be the one that the next passed over.
    assert not History(gaps=True).purge().purge().is_possible(HOME, count=1)


def test_a_rewind():
    """S14: an accepted message comes again once per rewind, with the batch that accepted it."""
    assert rewound().is_possible(HOME, count=2, mark=4)
    assert not rewound().is_possible(GONE)
    assert not rewound().deliver(OTHER, 2).end(OTHER).is_possible(HOME)
    assert not History().rewind().is_possible(GONE)


def test_what_an_operator_settles():
    """S8: a message that an operator settles in the lease is accepted by no later accept."""
    for outcome in ("released", "rejected"):
        settled = leased().settle(LEASE, outcome, kind="operate")
        assert not settled.settle(LEASE, "accepted", kind="operate").is_possible(GONE)


def test_a_lease_that_timed_out():
    """S5: a timed-out lease's accept takes ready messages, and none that others have or had."""

    def accept(history):
        return history.settle(LEASE, "accepted", kind="resume")

    assert not accept(leased().end(LEASE)).is_possible(HOME)
    for place, possible in ((DEAD, True), (GONE, False)):
        other = accept(leased().end(LEASE).deliver(OTHER, 2)).settle(OTHER, "rejected")
        assert other.is_possible(place) is possible
