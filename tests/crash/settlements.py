"""The ledger of a consuming crash test: what applications observed, and its violations.

Invariant: it blames the broker for nothing that the order of observations leaves open. A frame may
be read late, long after its stream was cut and its message was requeued, delivered to another
consumer and settled. So a delivery is known to be later than an event only

- when its channel was begun after the event was observed, or
- when its delivery count is higher: each delivery of a message in a queue has the next count (C7).

All other orders are not judged. The second is a rule of its own, and judged by the first.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

# Outcomes after which a message is no longer in its queue.
FINAL = ("accepted", "rejected")


@dataclass(slots=True, eq=False)
class Delivery:
    """A message as an application received it.

    Attributes:
        channel: The channel's number; `tag` is the delivery tag on it.
        begun_at: A time before the channel was opened.
        received_at: When the application received it.
        outcome: The outcome that it was settled with; "": it was not settled.
        told: The result: "done", "refused" (no effect), "unknown"; "": no answer yet.
        told_at: When the application learned the result.
    """

    name: str
    count: int
    redelivered: bool
    channel: int
    tag: int
    begun_at: float
    received_at: float
    outcome: str = ""
    told: str = ""
    told_at: float = 0.0

    def __str__(self):
        settled = f", {self.outcome}: {self.told or 'no answer'}" if self.outcome else ""
        return f"[channel {self.channel} tag {self.tag} count {self.count}{settled}]"

    def is_done(self, *outcomes):
        """Whether it was settled with one of the outcomes, and the settlement was answered."""
        return self.told == "done" and self.outcome in outcomes

    def may_be(self, outcome):
        """Whether it was settled with the outcome, and the settlement was not refused."""
        return self.outcome == outcome and self.told != "refused"

    def after(self, moment):
        """Whether it was certainly delivered after a moment."""
        return self.begun_at > moment


@dataclass(frozen=True)
class DeadLetter:
    """A message as it was found in the dead-letter queue."""

    name: str
    reason: str
    count: int


class Ledger:
    """The record of every message's deliveries and end; used by many threads.

    Args:
        delivery_limit: The queue's delivery limit (C13).
    """

    def __init__(self, delivery_limit):
        self.published = {}  # name -> whether it was confirmed
        self.deliveries = {}  # name -> its deliveries in the queue, as they were received
        self.dead = []
        self.unexpected = []
        self.figures = Counter()
        self._limit = delivery_limit
        self._lock = threading.Lock()

    # --- what applications saw ---

    def publish(self, names):
        """Records messages that are about to be published."""
        with self._lock:
            self.published.update(dict.fromkeys(names, False))
            self.figures["published"] += len(names)

    def confirm(self, names):
        """Records confirms."""
        with self._lock:
            self.published.update(dict.fromkeys(names, True))
            self.figures["confirmed"] += len(names)

    def deliver(self, delivery):
        """Records a delivery that was received."""
        with self._lock:
            self.deliveries.setdefault(delivery.name, []).append(delivery)
            self.figures["delivered"] += 1

    def tell(self, deliveries, outcome, told):
        """Records the settlement of deliveries as `outcome`, and its result."""
        with self._lock:
            now = time.monotonic()
            for each in deliveries:
                each.outcome, each.told, each.told_at = outcome, told, now
            self.figures[f"{outcome} {told}".strip()] += len(deliveries)

    def bury(self, name, reason, count):
        """Records a message found in the dead-letter queue."""
        with self._lock:
            self.dead.append(DeadLetter(name, reason, count))
            self.figures["dead"] += 1

    def report(self, what):
        """Records an event that must not happen in any order."""
        with self._lock:
            self.unexpected.append(what)

    @property
    def on_the_way(self):
        """The approximate number of messages that are neither accepted nor rejected."""
        settled = sum(self.figures[f"{outcome} done"] for outcome in FINAL)
        return self.figures["published"] - settled

    @property
    def answers(self):
        """The number of publishes and settlements that were answered as done."""
        with self._lock:
            return sum(
                count
                for name, count in self.figures.items()
                if name == "confirmed" or name.endswith(" done")
            )

    # --- the verdict, when all queues are empty ---

    def wrong(self):
        """The violations, a line each."""
        found = list(self.unexpected)
        dead = {}
        for letter in self.dead:
            dead.setdefault(letter.name, []).append(letter)
        for name in sorted({*self.published, *self.deliveries, *dead}):
            deliveries = sorted(self.deliveries.get(name, ()), key=lambda each: each.count)
            letters = dead.get(name, [])
            problems = [
                *self._places(name, deliveries, letters),
                *_again(deliveries),
                *_counts(deliveries),
                *self._deaths(deliveries, letters),
            ]
            seen = " ".join(map(str, [*deliveries, *letters]))
            found += [f"{name}: {problem}: {seen}" for problem in problems]
        return found

    def _places(self, name, deliveries, letters):
        """Q7, C4: a confirmed message is in one place; an unconfirmed one in one at most."""
        places = sum(each.is_done("accepted") for each in deliveries) + len(letters)
        if name not in self.published:
            yield "was never published"
        elif places > 1:
            yield f"is in {places} places"
        elif (
            not places
            and self.published[name]
            and not (deliveries and deliveries[-1].may_be("accepted"))
        ):
            yield "is lost"

    def _deaths(self, deliveries, letters):
        """C13: a dead letter was rejected, or failed once too often; and such a message is dead."""
        failures = [each for each in deliveries if each.may_be("failed")]
        counted = sum(each.is_done("failed") for each in deliveries)
        if counted > self._limit + 1:
            yield f"failed {counted} times"
        if (counted > self._limit or any(each.is_done("rejected") for each in deliveries)) and (
            not letters
        ):
            yield "is not in the dead-letter queue"
        for letter in letters:
            if letter.reason == "delivery_limit":
                died_of = failures if len(failures) > self._limit else []
            else:
                died_of = [each for each in deliveries if each.may_be("rejected")]
            if letter.count not in [each.count for each in died_of]:
                yield "died of nothing"


def _again(deliveries):
    """C4, C15: a message with an answered final settlement is not delivered again."""
    for final in deliveries:
        if not final.is_done(*FINAL):
            continue
        for each in deliveries:
            if each.count > final.count or each.after(final.told_at):
                yield f"came again, as {each}, after {final}"


def _counts(deliveries):
    """C7, Q7: counts grow from delivery to delivery, and agree with the redelivered flag.

    On one channel tags grow with time. Of two channels, one is later if it was begun after the
    other's message was received.
    """
    for one, other in pairwise(deliveries):
        if one.count == other.count:
            yield f"has count {one.count} twice"
    for early in deliveries:
        if early.redelivered != (early.count > 1):
            yield f"count {early.count} with redelivered {early.redelivered}"
        for late in deliveries:
            follows = late.after(early.received_at) or (
                late.channel == early.channel and late.tag > early.tag
            )
            if follows and late.count < early.count:
                yield f"counts down from {early} to {late}"
