"""A run of a ledger with Spark: the driver's process, its log, and how it is killed."""

import random
import time
from collections import Counter

from tests.crash import fire, points
from tests.crash.harness import last_error, spark_process


class DriverRun:
    """A run whose Spark driver is a process group of its own, which is killed and replaced.

    A subclass has `start_driver`, and `batches`, the newest batch of its queries.

    Args:
        folder: For the files of all processes.
        seed: Of its schedule.
        say: Prints a line.
    """

    def __init__(self, folder, seed, say):
        self.folder, self.say = folder, say
        self.random = random.Random(seed)
        self.began = time.monotonic()
        self.kills = Counter()
        self.driver, self.drivers = None, 0
        # The named point at which the driver dies, if any, and the file that arms it.
        self.armed, self.arm = None, folder / "arm"

    def note(self, text):
        """Writes a line of the log."""
        self.say(f"{time.monotonic() - self.began:8.1f} s  {text}")

    def count(self, kind):
        """Counts one more kill."""
        self.kills[kind] += 1
        self.note(f"kill {sum(self.kills.values())}: {kind}")

    def launch(self, module, *arguments):
        """Starts a program as the driver, without an armed point."""
        self.drivers += 1
        points.disarm(self.arm)
        self.armed = None
        self.log = self.folder / f"driver-{self.drivers:03d}.log"
        arguments = ["-m", module, "--folder", str(self.folder), *arguments]
        env = {"SPARK_WORKER_DIR": str(self.folder / "work"), points.ARM: str(self.arm)}
        self.driver = spark_process(arguments, self.log, self.folder / "spark", **env)
        self.batches_before = self.batches()

    def end_driver(self):
        """Ends all processes of the driver."""
        if self.driver is not None:
            fire.kill_group(self.driver.pid)
            self.driver.wait()

    def died_at(self):
        """The armed point at which the driver has died; None if it ended otherwise."""
        return self.armed if self.armed and not self.arm.exists() else None

    def arm_one(self, names):
        """Arms one of some points, unless one is armed."""
        if self.armed is None:
            self.armed = self.random.choice(names)
            points.arm(self.arm, self.armed, self.driver.pid)

    def kill_one(self, kind):
        """Kills one of the driver's processes of a kind, if there is any."""
        found = fire.targets(self.driver.pid, kind)
        if found and fire.kill(self.random.choice(found)):
            self.count(kind)

    def drain(self, within_s, *arguments):
        """Lets the queries finish without faults."""
        self.start_driver("--drain", *arguments)
        try:
            status = self.driver.wait(within_s)
        finally:
            self.end_driver()
        assert status == 0, f"the draining driver ended with {status}: {last_error(self.log)}"
