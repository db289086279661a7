"""Searches an explanation of a message's history: an order of instants that satisfies the rules.

A depth-first search over the operations of one message. Operations with an answer are part of it,
those without may be: there the search forks. A message has few operations, and the order of their
answers is nearly always right, so the first path usually succeeds.
"""

from typing import NamedTuple

from tests.crash.simulation.oracle.history import NEVER, Hold, Operation

NOWHERE, HOME, ORPHAN, DEAD, GONE = "nowhere", "home", "orphan", "dead", "gone"
# A message with more paths than this is not reported as wrong; none was seen with a hundredth.
_MOST_WAYS = 20_000


class State(NamedTuple):
    """The state of a message between two operations.

    Attributes:
        place: Where it is; `ORPHAN`: it is held, and its queue was deleted.
        deliveries: Deliveries that ended by a requeue.
        failures: The requeues by FAILED.
        hold: Its holder.
        waits: Whether it may be delayed, and not ready.
        cause: Its cause of death as a dead letter.
        died_after: Deliveries when it died.
        unseen: A holder that never saw it may still have it; that delivery is counted.
        kept: The lease that accepted it last, and may retain it (S13).
        mark: The batch of its last rewind (S14); -1: none.
        taken: A channel accepted it from a queue that retains it (S13).
    """

    place: str = NOWHERE
    deliveries: int = 0
    failures: int = 0
    hold: Hold | None = None
    waits: bool = False
    cause: str = ""
    died_after: int = 0
    unseen: bool = False
    kept: Hold | None = None
    mark: int = -1
    taken: bool = False


class Judge:
    """The rules of one message, as transitions between its states.

    Args:
        message: The message, with its history.
        released_from: The first instant at which a holder may have given back its messages.
        gaps: Whether deliveries may have been lost on the way: then counts may skip some.
        leases: The leases of queries that were read, by hold.
        expires_from: The first instant at which the message may have expired.
    """

    def __init__(self, message, released_from, *, gaps, leases, expires_from=NEVER):
        self._queue = message.queue
        self._message = message
        self._released_from = released_from
        self._leases = leases
        self._gaps = gaps
        self._expires_from = expires_from

    def explains(self, *, put):
        """Whether an order of the operations exists that satisfies the rules.

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
        """The states that an operation may lead to; none if it cannot take effect."""
        return getattr(self, f"_{operation.kind}")(state, operation)

    # --- operations ---

    def _put(self, state, _):
        return (State(HOME),) if state.place == NOWHERE else ()

    def _deliver(self, state, operation):
        """C1, C7: the next delivery of a ready message."""
        queue, hold, count, cause, died_after, mark = operation.what
        place = HOME if queue == self._queue.name else DEAD
        found = []
        for free in self._free(state, operation):
            if free.place != place or free.hold is not None:
                continue
            if not self._counts(free, count) or mark != free.mark:
                continue
            if place == DEAD and not self._is_of(free, cause, died_after):
                continue
            if hold is None:
                found.append(self._accepted(free))
            else:
                found.append(self._delivered(free, hold, count))
        return found

    def _delivered(self, state, hold, count):
        return state._replace(deliveries=count - 1, hold=hold, waits=False, unseen=False)

    def _settle(self, state, operation):
        """C4, C13: its holder settles the message with one of several possible outcomes."""
        hold, *outcomes = operation.what
        if state.hold != hold:
            return ()
        return [after for outcome in outcomes for after in self._settled(state, outcome)]

    def _operate(self, state, operation):
        """S8: a settlement of a message that is still in the lease; else its tag is a hole."""
        hold = operation.what[0]
        found = list(self._settle(state, operation))
        return found + [free for free in self._free(state, operation) if free.hold != hold]

    def _resume(self, state, operation):
        """S5: an accept of a lease that may have timed out.

        A ready message is in the lease again, and accepted; one that another reader has, or had, is
        a hole.
        """
        found = []
        for after in self._operate(state, operation):
            if after.place == HOME and after.hold is None:
                found.append(after._replace(place=GONE, kept=operation.what[0]))
                found += self._passed_over(after)
            else:
                found.append(after)
        return found

    def _resume_settled(self, state, operation):
        """S5, S8: as `resume`, for a tag that may be a hole because an operator settled it."""
        return self._resume(state, operation) + self._operate(state, operation)

    def _settled(self, state, outcome):
        if outcome == "accepted":
            return (self._accepted(state),)
        if outcome == "rejected":
            return self._given_up(state, "rejected")
        failures = state.failures + (outcome == "failed")
        limited = self._queue.limit and self._queue.dead and state.place != DEAD
        if outcome == "failed" and limited and failures > self._queue.limit:
            return self._given_up(state, "delivery_limit")
        back = self._requeued(state)
        # From a query each of them is delayed (C14); its holds are named by the incarnation.
        delayed = self._queue.delay_ms > 0 or isinstance(state.hold.owner, str)
        waits = outcome == "later" or (outcome == "failed" and delayed)
        return (back._replace(failures=failures, waits=waits) if back.place != GONE else back,)

    def _accepted(self, state):
        of_lease = state.hold in self._leases
        taken = self._queue.retains and not of_lease and state.place == HOME
        kept = state.hold if of_lease else state.kept
        return state._replace(place=GONE, hold=None, kept=kept, taken=taken)

    def _purge(self, state, operation):
        """Q4, S13: a ready or retained message is purged; a held or delayed one stays."""
        queue = operation.what
        place = HOME if queue == self._queue.name else DEAD
        found = []
        if place == HOME:
            state = state._replace(taken=False)
        for free in self._free(state, operation):
            if free.kept is not None and free.hold is None and place == HOME:
                found.append(State(GONE))
                if not 0 < self._leases[free.kept].over < operation.call:
                    found.append(free._replace(place=GONE))  # a replay may need it
            elif free.place != place or free.hold is not None:
                found.append(free)
            else:
                found.append(State(GONE))
            if free.place == place and free.hold is None:
                found += self._passed_over(free)
        return found

    def _rewind(self, state, operation):
        """S14: an accepted message that is retained is ready again, with the batch of then."""
        what, lease = operation.what, self._leases.get(state.kept)
        if state.place != GONE or lease is None:
            return (state,)
        inside = state.kept.owner == what.owner and state.kept.tag > what.after_tag
        ended = what.retains is False and 0 < lease.over < operation.call
        if ended or not (inside or lease.begun > what.called):
            return (state,)
        back = state._replace(place=HOME, deliveries=state.deliveries + 1, waits=False)
        found = [back._replace(mark=batch) for batch in sorted(lease.batches)]
        certain = self._released_from(state.kept) > operation.ret or what.alone
        return found if inside and what.retains and certain else [*found, state]

    def _rewind_queue(self, state, _):
        """S14: a message that a channel accepted is ready again, if it still is retained."""
        if state.place != GONE or not state.taken:
            return (state,)
        again = state._replace(place=HOME, waits=False, mark=-1, taken=False)
        again = again._replace(deliveries=state.deliveries + 1)
        return (again, state._replace(taken=False)) if self._queue.gives_way else (again,)

    def _delete(self, state, operation):
        """Q4: the queue is deleted; a held message stays with its holder."""
        found = []
        for free in self._free(state, operation):
            if free.place != HOME:
                found.append(free)
            elif free.hold is None:
                found.append(State(GONE))  # also a message that is delayed, or held unseen
            else:
                found.append(free._replace(place=ORPHAN))
        return found

    def _redrive(self, state, operation):
        """Q6: a ready dead letter may return to its original queue, or must if all are redriven."""
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
        """Q3: an overdue message that is not held expires."""
        return [
            self._dead(free, "expired")
            for free in self._free(state, operation)
            if free.place == HOME and free.hold is None and free.mark < 0
        ]

    def _acknowledged(self, state, _):
        """L9, L28: acknowledged at the remote broker: settled here, and no dead letter there."""
        gone = state.place == GONE and not state.cause
        return (state,) if gone or state.place == DEAD else ()

    def _rejected_there(self, state, _):
        """L28: rejected at the remote broker: rejected here too, and in no queue here."""
        return (state,) if state.place == GONE and state.cause else ()

    def _final(self, state, operation):
        """The message's place when everything had ended, and its next delivery number (C7)."""
        place, count, mark = operation.what
        for free in self._free(state, operation):
            if free.hold is not None:
                continue
            if count is not None and not (mark == free.mark and self._counts(free, count)):
                continue
            if place == free.place or (place == GONE and free.place == NOWHERE):
                return (free,)
            if place == GONE and free.place == HOME and self._queue.loose:
                return (State(GONE),)
        return ()

    # --- parts ---

    def _free(self, state, operation):
        """The state, and the state after its holder's requeue if that may have happened by then."""
        if state.hold is None:
            return (state,)
        if self._released_from(state.hold) <= operation.ret:
            return (self._requeued(state), state)
        return (state,)

    def _counts(self, state, count):
        """C7: whether the message's next delivery may have this number."""
        before = count - 1
        return before == state.deliveries or (self._gaps and before > state.deliveries)

    def _is_of(self, state, cause, died_after):
        """C13: whether a dead letter's cause and delivery count agree with the message's state."""
        if self._gaps:
            return cause == state.cause and died_after >= state.died_after
        return (cause, died_after) == (state.cause, state.died_after)

    def _passed_over(self, state):
        """The states of a message that was not ready after all.

        It was delayed, or held by a client that never saw it: then it has one more delivery.
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
        """C13, L28: a dead letter in the local broker, or in the one that it came from."""
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
    """Depth-first search; operations come in reverse order of return, taken from the end."""
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
        # The operation that returned first bounds which ones can precede it.
        bound = operations[left.bit_length() - 1].ret
        for index, each in enumerate(operations):
            if not done >> index & 1 and each.call <= bound:
                ways += [(done | 1 << index, after) for after in judge.after(state, each)]
    return False
