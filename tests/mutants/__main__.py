"""Draws mutants and runs tests with each; prints a line for each and a sum for each area."""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.mutants.mutation import mutants

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent / "site"
AREAS = {
    "core": "broker_stub/ackq_broker/core",
    "journal": "broker_stub/ackq_broker/journal",
    "engine": "broker_stub/ackq_broker/engine",
    "service": "broker_stub/ackq_broker/service",
    "client": "connector/ackq/client",
    "spark": "connector/ackq/spark",
    "link": "connector/ackq_link",
}


def main():
    """Exit status 0, whatever is killed: the figures are compared, not judged."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--area", choices=AREAS, required=True)
    parser.add_argument("--module", help="of the area, those whose dotted name contains this")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="of a run in s: it counts as killed"
    )
    parser.add_argument("suite", nargs="+", help="what pytest runs")
    args = parser.parse_args()
    assert run("", args.suite, args.timeout) == "survived", "the suite fails without a mutant"
    killed = 0
    drawn = draw(args.area, args.module or "", args.count, args.seed)
    for module, mutant in drawn:
        began = time.monotonic()
        how = run(f"{module}:{mutant.index}", args.suite, args.timeout)
        killed += how != "survived"
        took_s = time.monotonic() - began
        print(f"{how:9} {module}:{mutant.line} {mutant.kind} ({took_s:.0f} s)", flush=True)
    print(
        f"{args.area}, seed {args.seed}: {killed} of {len(drawn)} killed by {' '.join(args.suite)}"
    )
    return 0


def draw(area, part, count, seed):
    """Mutants of an area, each as likely as any other: (module, mutant)."""
    every = []
    for path in sorted((ROOT / AREAS[area]).rglob("*.py")):
        folder = ROOT / AREAS[area].split("/")[0]
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        if part in module:
            every += [(module, mutant) for mutant in mutants(path.read_text())]
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def run(mutant, suite, timeout_s):
    """`survived`, `killed` by a test, or `timeout`; an empty name is no mutant."""
    paths = [SITE, ROOT, ROOT / "connector", ROOT / "broker_stub"]
    env = os.environ | {
        "ACKQ_MUTANT": mutant,
        "ACKQ_MUTANT_ROOT": str(ROOT),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *suite]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return "killed" if ended.returncode else "survived"


if __name__ == "__main__":
    sys.exit(main())
