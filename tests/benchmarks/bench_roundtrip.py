"""Queue to Spark to queue, exactly once, against Kafka to Spark to Kafka, at least once.

Invariant: as in `relays`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import kafka_sides
import relays
import spark_harness
from harness import Comparison

HELP = "queue to queue through Spark as a ratio to tuned Kafka to Kafka"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    spark_harness.add_batches(parser)


def run(args: argparse.Namespace, endpoint: str) -> Iterator[Comparison]:
    """Comparisons per body size."""
    with kafka_sides.running() as kafka:
        for load in spark_harness.loads(args):
            yield from relays.compare(kafka, load, endpoint, args.repetitions)
