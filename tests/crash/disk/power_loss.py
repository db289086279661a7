"""Power cuts under a broker on a real ext4, with publishers and consumers, and the ledger adds up.

The broker meets them as a failing disk: it ends by itself, without another answer.

    python -m tests.crash.disk.power_loss --cuts 50 [--seed N]
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from ackq_broker import embedded
from tests.crash.consuming import CALM_S, Run
from tests.crash.disk.failpoints import environment
from tests.crash.disk.volumes import Volume

FAILED = 70
# A broker that nobody asks for anything has nothing to write, and cannot notice.
NOTICED_S = 90
# Of the cuts, those that do not wait until clients had answers from this life of the broker.
AT_ONCE = 0.25
POLL_S = 0.05


class PowerCuts:
    """Cuts the power of a broker's volume, again and again; `figures["cut"]` counts.

    Args:
        volume: Has the data directory.
        cuts: How many.
    """

    def __init__(self, volume, cuts, run, _relays):
        self.volume = volume
        self.cuts = cuts
        self.broker = run.broker
        self.ledger = run.ledger
        self.rng = random.Random(f"{run.seed} power")

    def go_on(self, _seconds):
        """All cuts; the broker serves again at the end."""
        pause = threading.Event()
        for _ in range(self.cuts):
            if self.rng.random() >= AT_ONCE:
                self._wait_for_answers(pause)
            pause.wait(self.rng.uniform(0, 2))
            self.volume.cut_power()
            if not self.broker.wait_dead(NOTICED_S):
                self.ledger.report("the broker did not notice")
                self.broker.kill()
            elif self.broker._child.returncode != FAILED:
                self.ledger.report(f"it ended with {self.broker._child.returncode}")
            self.volume.mount_again()
            self.ledger.figures["cut"] += 1
            self.broker.restart()

    def _wait_for_answers(self, pause):
        """Until something was answered: clients take long to come back to a busy machine."""
        before = self.ledger.answers
        deadline = time.monotonic() + CALM_S
        while self.ledger.answers == before:
            if time.monotonic() > deadline:
                self.ledger.report(f"nothing was answered for {CALM_S} s")
                return
            pause.wait(POLL_S)


def crash(folder, seed, cuts):
    """A run of power cuts; returns (what is wrong, the ledger)."""
    with (
        Volume(folder / "volume") as volume,
        embedded(volume.mount_point, env=environment(folder)) as broker,
    ):
        run = Run(broker, seed, partial(PowerCuts, volume, cuts))
        return run.go(0), run.ledger


def main():
    """The long form."""
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
