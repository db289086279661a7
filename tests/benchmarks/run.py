"""Runs a benchmark, or compares results with the expectations.

Invariant: exit status 0 means that every result reached its bound. A benchmark is a module with
HELP, OPTIONS and run(args, endpoint); an option has a default and a help text.
"""

import argparse
import importlib
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

# Some benchmarks start the servers of other suites.
sys.path.append(str(Path(__file__).parents[2]))

import cpu
import expectations
import harness

import ackq_broker
from ackq.client import Admin

# Each is the module `bench_NAME`.
BENCHMARKS = (
    *("source", "sink", "secured", "micro", "kafka", "publish", "confirms", "publishers"),
    *("singles", "stall", "link", "latency", "unacked", "recovery", "startup", "scale"),
)
# The options of each of them.
OPTIONS = {
    "sizes": ([100, 1024], "body sizes in bytes, separated by commas"),
    "reps": (5, "repetitions of each side"),
}


def main():
    """Runs the command of the command line; returns the exit status."""
    args = parse()
    return expectations.run(args) if args.command == "check" else benchmark(args)


def benchmark(args):
    """Runs a benchmark; returns 1 if a result misses its bound."""
    conditions = {"benchmark": args.command, "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    conditions |= harness.machine()
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        ackq_broker.embedded(data=Path(folder, "data"), http=True) as broker,
    ):
        args.metrics = f"http://{broker.http_endpoint}/metrics"
        cpu.SERVERS[cpu.ACKQ] = broker.pid
        results = list(args.module.run(args, broker.endpoint))
        with Admin(broker.endpoint) as admin:
            info = admin.info()
            conditions |= {"broker": info.version, "sync": info.sync_mode, **harness.NOTES}
    for name, value in conditions.items():
        print(f"{name:<12} {value}")
    for result in results:
        print(*result.lines(), sep="\n")
    if args.json:
        args.json.write_text(json.dumps(written(conditions, results), indent=2) + "\n", "utf-8")
    return 0 if all(result.passed for result in results) else 1


def written(conditions, results):
    """All measurements, as written to the file."""
    return {
        "conditions": conditions,
        "comparisons": [each.raw() for each in results if isinstance(each, harness.Comparison)],
        "figures": [each.raw() for each in results if isinstance(each, harness.Figures)],
    }


def parts(text):
    """The parts of an option's value: numbers, with `m` or without, or names."""
    found = [part.removesuffix("m") for part in text.split(",")]
    return [int(part) if part.isdecimal() else part for part in found]


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in BENCHMARKS:
        module = importlib.import_module(f"bench_{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        command.set_defaults(module=module)
        command.add_argument("--json", type=Path, help="write everything measured to this file")
        for option, (default, text) in {**OPTIONS, **module.OPTIONS}.items():
            kind = {list: parts}.get(type(default), type(default))
            how = {"action": "store_true"} if kind is bool else {"type": kind, "default": default}
            command.add_argument(f"--{option}", help=f"{text} ({default})", **how)
    check = commands.add_parser("check", help=expectations.HELP, description=expectations.HELP)
    expectations.add_arguments(check)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
