"""Runs a benchmark, shows results as a page, or compares them with the expectations.

Invariant: exit status 0 means that every result reached its bound. A benchmark is a module with
HELP, add_arguments(parser) and run(args, endpoint), listed in `BENCHMARKS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

# Some benchmarks start the servers of other suites.
sys.path.append(str(Path(__file__).parents[2]))

import bench_confirms
import bench_kafka
import bench_latency
import bench_link
import bench_micro
import bench_publish
import bench_publishers
import bench_rabbitmq
import bench_recovery
import bench_roundtrip
import bench_scale
import bench_secured
import bench_singles
import bench_sink
import bench_source
import bench_stall
import bench_startup
import bench_unacked
import cpu
import expectations
import harness
import report

import ackq_broker
from ackq.client import Admin

BENCHMARKS = {
    "source": bench_source,
    "sink": bench_sink,
    "secured": bench_secured,
    "micro": bench_micro,
    "publish": bench_publish,
    "confirms": bench_confirms,
    "publishers": bench_publishers,
    "singles": bench_singles,
    "stall": bench_stall,
    "unacked": bench_unacked,
    "kafka": bench_kafka,
    "rabbitmq": bench_rabbitmq,
    "link": bench_link,
    "roundtrip": bench_roundtrip,
    "recovery": bench_recovery,
    "startup": bench_startup,
    "latency": bench_latency,
    "scale": bench_scale,
}
# Commands that read results.
READERS = {"report": report, "check": expectations}


def main() -> int:
    """Runs the command of the command line; returns the exit status."""
    args = parse()
    if args.command in READERS:
        return READERS[args.command].run(args)
    return benchmark(args)


def benchmark(args: argparse.Namespace) -> int:
    """Runs a benchmark; returns 1 if a result misses its bound."""
    conditions = {"benchmark": args.command, "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    conditions |= harness.machine()
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-") as folder,
        ackq_broker.embedded(data=Path(folder, "data")) as broker,
    ):
        cpu.SERVERS[cpu.ACKQ] = broker.pid
        results = list(BENCHMARKS[args.command].run(args, broker.endpoint))
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


def written(conditions: dict[str, str], results: list[harness.Result]) -> dict[str, harness.Json]:
    """All measurements, as written to the file."""
    return {
        "conditions": conditions,
        "comparisons": [each.raw() for each in results if isinstance(each, harness.Comparison)],
        "figures": [each.raw() for each in results if isinstance(each, harness.Figures)],
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in BENCHMARKS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        command.add_argument(
            "--sizes",
            type=lambda text: [int(size) for size in text.split(",")],
            default=[100, 1024],
            help="body sizes in bytes, separated by commas (100,1024)",
        )
        command.add_argument(
            "--reps",
            "--repetitions",
            dest="repetitions",
            type=int,
            default=5,
            help="of each side (5)",
        )
        command.add_argument("--json", type=Path, help="write everything measured to this file")
        module.add_arguments(command)
    for name, reader in READERS.items():
        reader.add_arguments(commands.add_parser(name, help=reader.HELP, description=reader.HELP))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
