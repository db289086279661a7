"""Hostile bytes by hand: `python -m tests.fuzz --minutes 9 --seed 7`; `--target publish` for one.

Each target runs in a process of its own, so that a crash is seen: an example is a seed, noted
before it runs, and `--replay publish:7:1234` runs it again.
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

from tests.fuzz.targets import TARGETS

# An example that takes so long hangs: more than the time-outs of its calls, on a machine that does
# much else.
HANGS_S = 120
# The exit status of a run in which examples failed; any other says that the process did.
FAILED = 3
# Above what the process took when its first examples had run.
MOST_GROWTH_BYTES = 512 << 20


def main():
    """Runs targets, tells how many examples each had and what became of them."""
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
    """Runs a target in a process of its own; `FAILED` when something was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "note")
        command = [sys.executable, "-m", "tests.fuzz", "--here", str(note), "--target", name]
        command += ["--seed", str(seed), "--minutes", str(seconds / 60)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        print(ended.stdout, end="", flush=True)
        if ended.returncode in (0, FAILED):
            return ended.returncode
        how = signal.Signals(-ended.returncode).name if ended.returncode < 0 else ended.returncode
        print(f"{name}: ENDED WITH {how}; --replay {note.read_text().strip()}")
        print(ended.stderr[-3000:], flush=True)
        return FAILED


def examples(name, seed, seconds, note):
    """Runs examples of a target for a while, in this process."""
    faulthandler.enable()
    target, said, failed = TARGETS[name], Counter(), 0
    began, number, first_peak = time.monotonic(), 0, 0
    with note.open("wb", buffering=0) as noted:
        while time.monotonic() < began + seconds:
            number += 1
            which = f"{name}:{seed}:{number}"
            noted.seek(0)
            noted.write(f"{which:<80}".encode())
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                said[target(random.Random(which))] += 1
            except Exception:  # noqa: BLE001 - whatever it is, the others are run
                failed += 1
                print(f"{name}: FAILED; --replay {which}")
                traceback.print_exc(file=sys.stdout)
                if failed > 20:
                    break
            if number == 100:
                first_peak = _peak()
    faulthandler.cancel_dump_traceback_later()
    grown = _peak() - first_peak if first_peak else 0
    wrong = failed + (grown > MOST_GROWTH_BYTES)
    took_s = round(time.monotonic() - began, 1)
    figures = {"examples": number, "failed": failed, "seconds": took_s, "grown_MB": grown >> 20}
    print(name, json.dumps({**figures, **dict(said.most_common())}), flush=True)
    return FAILED if wrong else 0


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
