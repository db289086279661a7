"""Draws mutants and runs tests with each; prints a line for each and a sum for each area.

Of the suite, only test modules that call the function of the mutant run, the fastest first.
"""

import argparse
import ast
import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
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
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="of a run in s: it counts as killed"
    )
    parser.add_argument("--table", type=Path, help="appends each mutant to this CSV file")
    parser.add_argument("suite", nargs="+", help="what pytest runs")
    args = parser.parse_args()
    reached = reach(args.suite)
    drawn = draw(args.area, args.count, args.seed)
    killed = 0
    for module, mutant in drawn:
        began = time.monotonic()
        tests = that_reach(reached, module, mutant)
        name = f"{module}:{mutant.index}"
        how = run(name, tests, args.timeout) if tests else "survived"
        killed += how != "survived"
        took_s = time.monotonic() - began
        row = (args.area, name, mutant.line, mutant.kind, how)
        print(*row[1:], f"({took_s:.0f} s, {len(tests)} test modules)", flush=True)
        if args.table:
            with args.table.open("a", newline="") as table:
                csv.writer(table, lineterminator="\n").writerow(row)
    print(
        f"{args.area}, seed {args.seed}: {killed} of {len(drawn)} killed by {' '.join(args.suite)}"
    )
    return 0


def reach(suite):
    """What each test module calls, see `tests.mutants.reached`; the suite must pass."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "reached.json"
        ended = _pytest(suite, "", 3600, "-p", "tests.mutants.reached", ACKQ_REACHED=str(answer))
        assert ended.returncode == 0, f"the suite fails without a mutant:\n{ended.stdout}"
        return json.loads(answer.read_text())


def that_reach(reached, module, mutant):
    """Test modules that call the function in which a mutant is, the fastest first."""
    path = next(
        path
        for folder in ("connector", "broker_stub")
        for path in (
            (ROOT / folder).joinpath(*module.split(".")).with_suffix(".py"),
            (ROOT / folder).joinpath(*module.split("."), "__init__.py"),
        )
        if path.exists()
    )
    function = [str(path), _first_line(path.read_text(), mutant.line)]
    found = [(seconds, tests) for tests, (seconds, calls) in reached.items() if function in calls]
    return [tests for _, tests in sorted(found)]


def _first_line(source, line):
    """The first line, decorators included, of the function around a line."""
    around = [
        min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= node.end_lineno
    ]
    return max(around)


def draw(area, count, seed):
    """Mutants of an area, each as likely as any other: (module, mutant)."""
    every = []
    for path in sorted((ROOT / AREAS[area]).rglob("*.py")):
        folder = ROOT / AREAS[area].split("/")[0]
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        every += [(module, mutant) for mutant in mutants(path.read_text())]
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def run(mutant, suite, timeout_s):
    """The test that kills a mutant, `timeout`, or `survived`."""
    try:
        ended = _pytest(suite, mutant, timeout_s, "-x")
    except subprocess.TimeoutExpired:
        return "timeout"
    if not ended.returncode:
        return "survived"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    return failed[1] if failed else "no test could run"


def _pytest(suite, mutant, timeout_s, *options, **more):
    """Runs pytest in a process whose imports, and those of its children, give the mutant."""
    paths = [SITE, ROOT, ROOT / "connector", ROOT / "broker_stub"]
    env = os.environ | {
        "ACKQ_MUTANT": mutant,
        "ACKQ_MUTANT_ROOT": str(ROOT),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        **more,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *suite]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
