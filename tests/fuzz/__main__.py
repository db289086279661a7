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
from pathlib import Path

from ackq_broker import embedding
from tests.fuzz.targets import targets

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
    parser.add_argument("--target", action="append", choices=sorted(targets()))
    parser.add_argument("--replay", help="target:seed:example")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.replay:
        name, seed, number = args.replay.split(":")
        print(targets()[name].run(random.Random(f"{name}:{seed}:{number}")))
        return 0
    names = args.target or sorted(targets())
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
    """Runs examples of a target for `seconds`, in this process; prints the number of each outcome.

    The memory of its first examples is what it may grow above.
    """
    faulthandler.enable()
    embedding._START_S = STARTS_S
    target, said, began, first_peak = targets()[name], Counter(), time.monotonic(), 0
    with target.around(), note.open("wb", buffering=0) as noted:
        while time.monotonic() - began < seconds and said["failed"] <= MOST_FAILED:
            which = f"{name}:{seed}:{said.total() + 1}"
            noted.seek(0)
            noted.truncate()
            noted.write(f"--replay {which}; before it {json.dumps(said)}".encode())
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                said[target.run(random.Random(which))] += 1
            except Exception:  # noqa: BLE001 - the other examples run, whatever the error
                said["failed"] += 1
                print(f"{name}: FAILED; --replay {which}")
                traceback.print_exc(file=sys.stdout)
            if said.total() == 100:
                first_peak = _peak()
        faulthandler.cancel_dump_traceback_later()
    grown = _peak() - first_peak if first_peak else 0
    took = round(time.monotonic() - began, 1), round(time.process_time(), 1)
    print(f"{name}: {said.total()} in {took[0]} s, {took[1]} s of the CPU, {grown >> 20} MB more")
    print(json.dumps(said), flush=True)
    return FAILED if said["failed"] or grown > MOST_GROWTH_BYTES else 0


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
