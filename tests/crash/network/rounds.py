"""A round: clients of every kind at once, each behind a relay with its own faults, then calm.

Invariant: every call that may wait is made under `Guard.within`, so that one that never ends is
reported with the line where it waits, and the run ends.
"""

import abc
import faulthandler
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import contextmanager

from ackq.client import Admin, close_channels
from tests.crash.network.timeouts import notice_s
from tests.fakes.faults import KINDS, Schedule
from tests.fakes.relay import Relay

# For a machine with much other load.
MARGIN_S = 60.0


class Guard:
    """The calls in progress, and the deadline of each."""

    def __init__(self):
        self._calls = {}  # (thread, call): deadline
        self._longest = Counter()

    @contextmanager
    def within(self, what, seconds):
        """Runs a call that must end within `seconds`, as documented, plus the margin."""
        begun = time.monotonic()
        call = threading.current_thread().name, what
        self._calls[call] = begun + seconds + MARGIN_S
        try:
            yield
        finally:
            del self._calls[call]
            took_s = time.monotonic() - begun
            self._longest[what] = max(self._longest[what], took_s)

    def check(self):
        """Ends the process, with the stacks of all threads, if a call is overdue."""
        now = time.monotonic()
        for call, until in list(self._calls.items()):
            if now > until:
                print("HANG", *call, flush=True)
                faulthandler.dump_traceback(sys.stdout, all_threads=True)
                os._exit(3)

    @property
    def longest(self):
        """The longest duration of each call in seconds."""
        return dict(self._longest)


class Actor(threading.Thread, abc.ABC):
    """A client of one kind: acts until `stopping`, ends in order, and then checks its books.

    Attributes:
        rng: Its own generator, from the seed and its kind.
        queue: A queue of its own.
        patience_s: Time in which a call that waits for the network succeeds: when the faults end.
        wrong: Violations.
        figures: Counts for the summary.
    """

    kind = ""

    def __init__(self, endpoint, seed, guard, seconds, faults=tuple(KINDS)):
        super().__init__(name=f"{self.kind} {seed}", daemon=True)
        self.schedule = Schedule(f"{seed} {self.kind}", faults)
        self.patience_s = seconds + notice_s()
        self.rng = random.Random(f"{seed} {self.kind} acts")
        self.direct = endpoint
        self.relay = Relay(endpoint, self.schedule)
        self.endpoint = self.relay.endpoint
        self.queue = f"{self.kind}-{seed}"
        self.guard = guard
        self.stopping = threading.Event()
        self.wrong = []
        self.figures = Counter()

    def run(self):
        begun = time.monotonic()
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - the summary reports any error
            self.report(f"ended with {error!r}")
            traceback.print_exception(error, file=sys.stdout)
        self.figures["seconds"] = round(time.monotonic() - begun)

    @abc.abstractmethod
    def act(self):
        """Runs the client until `stopping`, and ends it in order."""

    @abc.abstractmethod
    def check(self):
        """Compares the books with the broker; called when the thread has ended."""

    def report(self, what):
        """Records a violation."""
        self.wrong.append(f"{self.name}: {what}")

    def pause(self):
        """Waits a moment between two actions."""
        threading.Event().wait(self.rng.uniform(0, 0.05))

    def compare(self, found, once, *, maybe=()):
        """Reports names of `once` that are not in `found` exactly once, and unexpected ones."""
        lost = [name for name in once if not found[name]]
        doubled = [name for name, times in found.items() if times > 1]
        strays = found.keys() - set(once) - set(maybe)
        self.figures["messages"] += len(once)
        for what, names in (("lost", lost), ("doubled", doubled), ("stray", sorted(strays))):
            self.figures[what] += len(names)
            if names:
                self.report(f"{len(names)} {what}, first {names[0]}")


def play(endpoint, actors, guard, seconds):
    """Runs actors under faults for `seconds`, and then in calm; returns the violations."""
    with Admin(endpoint) as admin:
        for each in actors:
            admin.declare_queue(each.queue)
    for each in actors:
        each.start()
    calm_at = time.monotonic() + seconds
    pause = threading.Event()
    calm = False
    while any(each.is_alive() for each in actors):
        pause.wait(0.1)
        guard.check()
        if not calm and time.monotonic() > calm_at:
            calm = True
            for each in actors:
                each.relay.calm()
                each.stopping.set()
    for each in actors:
        each.join()
        each.relay.close()
    close_channels()
    for each in actors:
        each.check()
    return [wrong for each in actors for wrong in each.wrong]


def told(actors):
    """A line of figures for each actor, and the faults that struck those with violations."""
    for each in actors:
        struck = Counter(fault.kind for _, fault in each.relay.struck)
        faults = ", ".join(f"{kind} {times}" for kind, times in sorted(struck.items()))
        figures = ", ".join(f"{name} {times}" for name, times in sorted(each.figures.items()))
        yield f"  {each.kind:<14} {figures}; {faults}"
        if each.wrong:
            yield from (f"    {number}: {fault}" for number, fault in each.relay.struck)
