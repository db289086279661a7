"""Hostile bytes by hand: `python -m tests.fuzz --minutes 9 --seed 7`; `--target publish` for one.

Each target runs in a process of its own, so that a crash is noticed: an example is a seed, recorded
with the figures so far before it runs, and `--replay publish:7:1234` runs it again.
"""

import argparse
import faulthandler
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from ackq_broker import embedding
from tests.fuzz.targets import AROUND, TARGETS

# A broker that is not up after this time does not start: at a low priority, on a busy machine.
STARTS_S = 600
# A longer example hangs: in addition to its calls it may restart the broker.
HANGS_S = STARTS_S + 300
# The exit status of a run in which examples failed; any other means that the process failed.
FAILED = 3
MOST_FAILED = 20
# Growth above the memory of the process after its first examples.
MOST_GROWTH_BYTES = 512 << 20


def main():
    """Runs targets, and prints the number of examples and the outcomes of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--replay", help="target:seed:example")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.replay:
        name, seed, number = args.replay.split(":")
        print(TARGETS[name](random.Random(f"{name}:{seed}:{number}")))
        return 0
    names = args.target or sorted(TARGETS)
    seconds = 60 * args.minutes / len(names)
    if args.here:
        return examples(names[0], args.seed, seconds, Path(args.here))
    return max([child(name, args.seed, seconds) for name in names])


def child(name, seed, seconds):
    """Runs a target in a process of its own; returns `FAILED` if an example failed."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "note")
        note.touch()
        command = [sys.executable, "-m", "tests.fuzz", "--here", str(note), "--target", name]
        command += ["--seed", str(seed), "--minutes", str(seconds / 60)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        print(ended.stdout, end="", flush=True)
        if ended.returncode in (0, FAILED):
            return ended.returncode
        how = signal.Signals(-ended.returncode).name if ended.returncode < 0 else ended.returncode
        print(f"{name}: ENDED WITH {how}; {note.read_text() or 'before its first example'}")
        print(ended.stderr[-3000:], flush=True)
        return FAILED


def examples(name, seed, seconds, note):
    """Runs examples of a target for `seconds`, in this process."""
    faulthandler.enable()
    embedding._START_S = STARTS_S
    with AROUND.get(name, nullcontext)(), note.open("wb", buffering=0) as noted:
        figures = Figures()
        while figures.seconds() < seconds and figures.failed <= MOST_FAILED:
            which = f"{name}:{seed}:{figures.examples + 1}"
            noted.seek(0)
            noted.truncate()
            noted.write(f"--replay {which}; before it {figures}".encode())
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                figures.count(TARGETS[name](random.Random(which)))
            except Exception:  # noqa: BLE001 - the other examples run, whatever the error
                figures.count("")
                print(f"{name}: FAILED; --replay {which}")
                traceback.print_exc(file=sys.stdout)
        faulthandler.cancel_dump_traceback_later()
    print(name, figures, flush=True)
    return FAILED if figures.failed or figures.grown() > MOST_GROWTH_BYTES else 0


class Figures:
    """The counts of examples and of their outcomes, and their cost."""

    def __init__(self):
        self.examples = self.failed = 0
        self._said = Counter()
        self._began, self._first_peak = time.monotonic(), 0

    def count(self, said):
        """Counts an example by its outcome; "" for one that failed."""
        self.examples += 1
        self.failed += not said
        self._said.update([said] if said else [])
        if self.examples == 100:
            self._first_peak = _peak()

    def seconds(self):
        """Seconds since the first example."""
        return time.monotonic() - self._began

    def grown(self):
        """Growth in bytes above the memory of the first examples."""
        return _peak() - self._first_peak if self._first_peak else 0

    def __str__(self):
        took = {"seconds": round(self.seconds(), 1), "cpu_s": round(time.process_time(), 1)}
        told = {"examples": self.examples, "failed": self.failed, **took}
        told["grown_MB"] = self.grown() >> 20
        return json.dumps({**told, **dict(self._said.most_common())})


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
