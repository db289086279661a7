"""Power cuts under a broker on a real ext4, with publishers and consumers; no message is lost.

A cut takes broker and disk at the same instant, or the disk alone: the broker then ends by itself,
without another answer. Some cuts come while it recovers from the previous one.

    python -m tests.crash.disk.power_loss --cuts 50 [--seed N]
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from ackq.errors import BrokerUnavailableError, DamagedError
from ackq_broker import embedded
from tests.crash.consuming import CALM_S, Run
from tests.crash.disk.failpoints import environment
from tests.crash.disk.volumes import Volume

# The exit status of a broker whose disk fails, of one that cannot read its journal, and of a kill.
FAILED, REFUSED, KILLED = 70, (1, 2), -signal.SIGKILL
# Share of the cuts that take the broker with the disk.
WITH_BROKER = 0.5
# A broker without requests has nothing to write, and cannot notice the cut.
NOTICED_S = 300
# Share of the cuts that do not wait until this broker process has answered clients.
AT_ONCE = 0.25
# Share of the starts that are cut, at most this long after the first file was opened.
IN_RECOVERY, RECOVERY_S = 0.3, 0.5
POLL_S = 0.01


class PowerCuts:
    """Cuts the power of a broker's volume repeatedly.

    `figures["cut"]` counts the cuts; others count those that took the disk alone, and those that
    hit a broker before it served.

    Args:
        volume: Has the data directory.
        cuts: Number of cuts.
    """

    def __init__(self, volume, cuts, run, _relays):
        self.volume = volume
        self.cuts = cuts
        self.broker = run.broker
        self.ledger = run.ledger
        self.rng = random.Random(f"{run.seed} power")
        # A broker that outlives its disk cannot read what it has to deliver (Q5).
        run.ends += (DamagedError,)

    def go_on(self, _seconds):
        """Makes all cuts; the broker serves again at the end."""
        pause = threading.Event()
        while self._cuts_are_left():
            if self.rng.random() >= AT_ONCE:
                self._wait_for_answers(pause)
            pause.wait(self.rng.uniform(0, 2))
            self._end(self._cut())
            while self._cuts_are_left() and self.rng.random() < IN_RECOVERY:
                self._cut_recovery(self.rng.uniform(0, RECOVERY_S))
            self.broker.restart()

    def _cuts_are_left(self):
        return self.ledger.figures["cut"] < self.cuts

    def _cut(self):
        """Cuts the power, first of the disk alone; returns the possible exit statuses."""
        if self.ledger.figures["cut"] and self.rng.random() < WITH_BROKER:
            self.volume.cut_power(self.broker.pid)
            return (KILLED,)
        self.volume.vanish(self.broker.pid)
        self.ledger.figures["disk alone"] += 1
        return (FAILED,)

    def _end(self, statuses):
        """Waits until the broker ends by itself, and mounts the volume as at a machine's start."""
        if not self.broker.wait_dead(NOTICED_S):
            self.ledger.report("the broker did not notice")
            self.broker.kill()
        elif self.broker._child.returncode not in statuses:
            self.ledger.report(f"it ended with {self.broker._child.returncode}")
        self.volume.mount_again()
        self.ledger.figures["cut"] += 1

    def _cut_recovery(self, after_s):
        """Starts the broker, and cuts the power `after_s` after it has opened a file."""
        cut = threading.Thread(target=self._cut_once_open, args=(self.broker.pid, after_s))
        cut.start()
        try:
            self.broker.restart()
        except BrokerUnavailableError:
            self.ledger.figures["cut before it served"] += 1
        cut.join()
        self._end((FAILED, *REFUSED, KILLED))

    def _cut_once_open(self, before, after_s):
        """Cuts the power once the process that follows `before` has opened a file."""
        pause = threading.Event()
        deadline = time.monotonic() + CALM_S
        while self.broker.pid == before or not self.volume.is_open_in(self.broker.pid):
            assert time.monotonic() < deadline
            pause.wait(POLL_S)
        pause.wait(after_s)
        self._cut()

    def _wait_for_answers(self, pause):
        """Waits until something was answered: clients recover slowly on a busy machine."""
        before = self.ledger.answers
        deadline = time.monotonic() + CALM_S
        while self.ledger.answers == before:
            if time.monotonic() > deadline:
                self.ledger.report(f"nothing was answered for {CALM_S} s")
                return
            pause.wait(POLL_S)


def crash(folder, seed, cuts):
    """A run of power cuts; returns (violations, the ledger)."""
    with (
        Volume(folder / "volume") as volume,
        embedded(volume.mount_point, env=environment(folder)) as broker,
    ):
        run = Run(broker, seed, partial(PowerCuts, volume, cuts))
        return run.go(0), run.ledger


def main():
    """Runs the long form from the command line."""
    parser = argparse.ArgumentParser(description="Power cuts under a broker on a real ext4.")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wrong, ledger = crash(Path(folder), options.seed, options.cuts)
    print("  " + ", ".join(f"{name} {n}" for name, n in sorted(ledger.figures.items())))
    for each in wrong:
        print(f"  WRONG {each}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
