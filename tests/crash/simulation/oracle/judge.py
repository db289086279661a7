"""Whether a message's history has an explanation: an order of instants in which the rules hold.

A depth-first search over the operations of one message. Operations that were answered are in it,
those that were not may be: that is where it forks. A message has few, and the order of their
answers is nearly always right, so the first way down ends well.
"""

from typing import NamedTuple

from tests.crash.simulation.oracle.history import NEVER, Hold, Operation

NOWHERE, HOME, ORPHAN, DEAD, GONE = "nowhere", "home", "orphan", "dead", "gone"
# A message with more ways than this is not judged to be wrong; none was seen with a hundredth.
_MOST_WAYS = 20_000


class State(NamedTuple):
    """A message between two operations.

    Attributes:
        place: Where it is; `ORPHAN` is held, and its queue was deleted.
        deliveries: Those that ended by a requeue.
        failures: Those of them that FAILED.
        hold: Who has it.
        waits: Whether it may be delayed, and not ready.
        cause: What it died of.
        died_after: Deliveries when it died.
        unseen: Somebody may have it still who never saw it; that delivery is counted.
    """

    place: str = NOWHERE
    deliveries: int = 0
    failures: int = 0
    hold: Hold | None = None
    waits: bool = False
    cause: str = ""
    died_after: int = 0
    unseen: bool = False


class Judge:
    """The rules of one message.

    Args:
        message: With its history.
        released_from: The first instant at which a holder may have given back what it had.
        gaps: Whether deliveries may have been lost on the way: then counts may skip some.
        expires_from: The first instant at which the message may have expired.
    """

    def __init__(self, message, released_from, *, gaps, expires_from=NEVER):
        self._queue = message.queue
        self._message = message
        self._released_from = released_from
        self._gaps = gaps
        self._expires_from = expires_from

    def explains(self, *, put):
        """Whether there is an order in which everything holds.

        Args:
            put: True: it was placed; False: it was not; None: either.
        """
        message = self._message
        operations = list(message.operations)
        if message.put is not None and put is not False:
            first = message.put
            must = first.must if put is None else True
            operations.append(Operation(first.kind, first.call, first.ret, must, first.what))
        if self._expires_from < NEVER:
            operations.append(Operation("expire", self._expires_from))
        operations.sort(key=lambda each: (each.ret, each.call), reverse=True)
        return _search(self, operations)

    def after(self, state, operation):
        """The states that an operation may lead to; none where it cannot take effect."""
        return getattr(self, f"_{operation.kind}")(state, operation)

    # --- operations ---

    def _put(self, state, _):
        return (State(HOME),) if state.place == NOWHERE else ()

    def _deliver(self, state, operation):
        """C1, C7: the next delivery of what is ready."""
        queue, hold, count, cause, died_after = operation.what
        place = HOME if queue == self._queue.name else DEAD
        found = []
        for free in self._free(state, operation):
            if free.place != place or free.hold is not None:
                continue
            if not self._counts(free, count):
                continue
            if place == DEAD and not self._is_of(free, cause, died_after):
                continue
            if hold is None:
                found.append(State(GONE))
            else:
                found.append(self._delivered(free, hold, count))
        return found

    def _delivered(self, state, hold, count):
        return state._replace(deliveries=count - 1, hold=hold, waits=False, unseen=False)

    def _settle(self, state, operation):
        """C4, C13: its holder settles it; one outcome of several that are possible."""
        hold, *outcomes = operation.what
        if state.hold != hold:
            return ()
        return [after for outcome in outcomes for after in self._settled(state, outcome)]

    def _operate(self, state, operation):
        """S8: as a settlement, of what is still in the lease; else its tag is a hole."""
        hold = operation.what[0]
        found = list(self._settle(state, operation))
        return found + [free for free in self._free(state, operation) if free.hold != hold]

    def _resume(self, state, operation):
        """S5: an accept of a lease that may have timed out.

        What is ready is in it again, and accepted; what another reader has, or had, is a hole.
        """
        found = []
        for after in self._operate(state, operation):
            if after.place == HOME and after.hold is None:
                found.append(State(GONE))
                found += self._passed_over(after)
            else:
                found.append(after)
        return found

    def _resume_settled(self, state, operation):
        """S5, S8: as `resume`, of a tag that an operator may have settled: then it is a hole."""
        return self._resume(state, operation) + self._operate(state, operation)

    def _settled(self, state, outcome):
        if outcome == "accepted":
            return (State(GONE),)
        if outcome == "rejected":
            return self._given_up(state, "rejected")
        failures = state.failures + (outcome == "failed")
        limited = self._queue.limit and self._queue.dead and state.place != DEAD
        if outcome == "failed" and limited and failures > self._queue.limit:
            return self._given_up(state, "delivery_limit")
        back = self._requeued(state)
        # From a query each of them waits (C14); its holds are named by the incarnation.
        delayed = self._queue.delay_ms > 0 or isinstance(state.hold.owner, str)
        waits = outcome == "later" or (outcome == "failed" and delayed)
        return (back._replace(failures=failures, waits=waits) if back.place != GONE else back,)

    def _purge(self, state, operation):
        """Q4: what is ready goes; what is held or delayed stays."""
        queue = operation.what
        place = HOME if queue == self._queue.name else DEAD
        found = []
        for free in self._free(state, operation):
            if free.place != place or free.hold is not None:
                found.append(free)
            else:
                found.append(State(GONE))
                found += self._passed_over(free)
        return found

    def _delete(self, state, operation):
        """Q4: the queue goes; what is held stays with its holder."""
        found = []
        for free in self._free(state, operation):
            if free.place != HOME:
                found.append(free)
            elif free.hold is None:
                found.append(State(GONE))  # also what is delayed, or held unseen
            else:
                found.append(free._replace(place=ORPHAN))
        return found

    def _redrive(self, state, operation):
        """Q6: what is ready among the dead letters may go home, or must."""
        everything = operation.what
        found = []
        for free in self._free(state, operation):
            if free.place != DEAD or free.hold is not None:
                found.append(free)
            else:
                found.append(State(HOME))
                found += self._passed_over(free)
                if not everything:
                    found.append(free)
        return found

    def _expire(self, state, operation):
        """Q3: what is overdue and not held."""
        return [
            self._dead(free, "expired")
            for free in self._free(state, operation)
            if free.place == HOME and free.hold is None
        ]

    def _acknowledged(self, state, _):
        """L9, L28: acknowledged at another broker: it is settled here, and no dead letter there."""
        gone = state.place == GONE and not state.cause
        return (state,) if gone or state.place == DEAD else ()

    def _rejected_there(self, state, _):
        """L28: rejected at another broker: as it was here, where it is in no queue."""
        return (state,) if state.place == GONE and state.cause else ()

    def _final(self, state, operation):
        """Where it was found when everything had ended, and its next delivery (C7)."""
        place, count = operation.what
        for free in self._free(state, operation):
            if free.hold is not None:
                continue
            if count is not None and not self._counts(free, count):
                continue
            if place == free.place or (place == GONE and free.place == NOWHERE):
                return (free,)
            if place == GONE and free.place == HOME and self._queue.loose:
                return (State(GONE),)
        return ()

    # --- parts ---

    def _free(self, state, operation):
        """The state, and that after its holder gave it back, if it may have done so by then."""
        if state.hold is None:
            return (state,)
        if self._released_from(state.hold) <= operation.ret:
            return (self._requeued(state), state)
        return (state,)

    def _counts(self, state, count):
        """C7: whether its next delivery may have this number."""
        before = count - 1
        return before == state.deliveries or (self._gaps and before > state.deliveries)

    def _is_of(self, state, cause, died_after):
        """C13: whether a dead letter tells of its death what is known of it."""
        if self._gaps:
            return cause == state.cause and died_after >= state.died_after
        return (cause, died_after) == (state.cause, state.died_after)

    def _passed_over(self, state):
        """The states of a message that was not ready after all.

        It was delayed, or held by somebody who never saw it: then it is one delivery older.
        """
        if state.waits:
            yield state
        if self._gaps:
            deliveries = state.deliveries + (not state.unseen)
            yield state._replace(deliveries=deliveries, unseen=True)

    def _requeued(self, state):
        if state.place == ORPHAN:
            return State(GONE)
        return state._replace(deliveries=state.deliveries + 1, hold=None, waits=False)

    def _given_up(self, state, cause):
        """C13, L28: a dead letter here, or of the broker that it came from."""
        dead = self._dead(state, cause)
        if not self._message.foreign or state.place == DEAD:
            return (dead,)
        return (dead, State(GONE, cause=cause))

    def _dead(self, state, cause):
        if state.place == DEAD or not self._queue.dead:
            return State(GONE)
        died_after = state.deliveries + (state.hold is not None)
        return State(DEAD, cause=cause, died_after=died_after)


def _search(judge, operations):
    """Depth first. Operations come by their return, the last first: so the first is tried first."""
    musts = sum(1 << index for index, each in enumerate(operations) if each.must)
    ways = [(0, State())]
    seen = set()
    while ways:
        way = ways.pop()
        if way in seen:
            continue
        seen.add(way)
        done, state = way
        left = musts & ~done
        if not left:
            return True
        if len(seen) > _MOST_WAYS:
            return True
        # The operation that returned first bounds what can come before it.
        bound = operations[left.bit_length() - 1].ret
        for index, each in enumerate(operations):
            if not done >> index & 1 and each.call <= bound:
                ways += [(done | 1 << index, after) for after in judge.after(state, each)]
    return False
