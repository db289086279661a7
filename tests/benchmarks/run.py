"""Runs a benchmark: `python tests/benchmarks/run.py source|sink|micro|publish|confirms|unacked`.

Invariant: exit status 0 means that every comparison reached its floor. A benchmark is a module with
HELP, add_arguments(parser) and run(args, endpoint), listed in `BENCHMARKS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import bench_confirms
import bench_micro
import bench_publish
import bench_sink
import bench_source
import bench_unacked
import harness

import ackq_broker
from ackq.client import Admin

BENCHMARKS = {
    "source": bench_source,
    "sink": bench_sink,
    "micro": bench_micro,
    "publish": bench_publish,
    "confirms": bench_confirms,
    "unacked": bench_unacked,
}


def main() -> int:
    """Run the benchmark that the command line names; returns the exit status."""
    args = parse()
    conditions = harness.machine()
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        ackq_broker.embedded(data=Path(folder, "data")) as broker,
    ):
        comparisons = list(BENCHMARKS[args.benchmark].run(args, broker.endpoint))
        with Admin(broker.endpoint) as admin:
            info = admin.info()
            conditions |= {"broker": info.version, "sync": info.sync_mode}
    for name, value in conditions.items():
        print(f"{name:<12} {value}")
    for comparison in comparisons:
        print(*comparison.lines(), sep="\n")
    if args.json:
        report = {"conditions": conditions, "comparisons": [c.raw() for c in comparisons]}
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if all(comparison.passed for comparison in comparisons) else 1


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="benchmark", required=True)
    for name, module in BENCHMARKS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        command.add_argument(
            "--sizes",
            type=lambda text: [int(size) for size in text.split(",")],
            default=[100, 1024],
            help="body sizes in bytes, separated by commas (100,1024)",
        )
        command.add_argument("--repetitions", type=int, default=5, help="of each side (5)")
        command.add_argument("--json", type=Path, help="write everything measured to this file")
        module.add_arguments(command)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
