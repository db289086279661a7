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
from tests.crash.consuming import Run
from tests.crash.disk.failpoints import environment
from tests.crash.disk.volumes import Volume

FAILED = 70
NOTICED_S = 30


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
