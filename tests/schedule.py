"""The schedule of pytest-xdist: which worker gets which tests, and which begin first.

Invariant: all tests run, and a file stays with one worker, which starts its fixtures once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from xdist.scheduler import LoadFileScheduling

# Files whose tests share a slow start of a server stay together, by their folder.
SHARED = {
    "Spark": ("tests/spark/",),
    "jobs": ("tests/e2e/",),
    # Before RabbitMQ, whose folder theirs are in.
    "managed RabbitMQ": ("tests/wire/links/managed/",),
    "NATS": ("tests/wire/links/jetstream/",),
    "Artemis and Qpid": ("tests/wire/links/amqp1/",),
    # Two parts of about equal length, with a node of its own for each.
    "RabbitMQ, links": (
        "tests/wire/links/test_inbound.py",
        "tests/wire/links/test_outbound.py",
        "tests/wire/links/test_vanished.py",
    ),
    "RabbitMQ": (
        "tests/wire/consuming/",
        "tests/wire/links/",
        "tests/wire/publishing/",
        "tests/wire/queues/",
        "tests/wire/test_differential.py",
    ),
    "a browser": ("tests/wire/dashboard/",),
}
# Files in these folders that do not use the shared server, or start one of their own.
APART = frozenset(
    (
        "tests/e2e/test_kit.py",
        "tests/e2e/test_pipeline.py",
        "tests/spark/test_clusters.py",
        "tests/spark/test_idle.py",
        "tests/spark/test_readme.py",
        "tests/spark/test_secrets.py",
        "tests/wire/consuming/test_storms.py",
        "tests/wire/links/jetstream/test_cluster.py",
    )
)
# The slowest files come first: begun last, one worker would run them alone.
SLOWEST = (
    "Artemis and Qpid",
    "tests/spark/test_clusters.py",
    "tests/crash/links/test_end_to_end.py",
    "Spark",
    "jobs",
    "tests/crash/test_ledger.py",
    "tests/crash/disk/test_real_disks.py",
    "RabbitMQ, links",
    "RabbitMQ",
    "a browser",
    "tests/wire/links/jetstream/test_cluster.py",
    "tests/crash/links/test_fire.py",
    "tests/wire/operations/test_disk.py",
    "tests/crash/disk/test_failpoints.py",
    "tests/wire/access/test_users.py",
    "NATS",
    "tests/crash/test_simulation.py",
    "tests/crash/test_consuming_ledger.py",
    "tests/spark/test_readme.py",
    "tests/spark/test_secrets.py",
    "tests/crash/network/test_spark.py",
    "tests/wire/consuming/test_storms.py",
    "tests/wire/operations/test_hostile_clients.py",
    "tests/wire/operations/test_refused_clients.py",
    "tests/wire/sessions/test_retained.py",
    "tests/structure/test_rules.py",
    "tests/wire/cli/test_why.py",
    "tests/wire/access/test_owners.py",
    "tests/wire/access/test_attacks.py",
    "tests/wire/cli/test_transcripts.py",
    "tests/model/test_linking.py",
    "tests/wire/operations/test_keepalive.py",
    "tests/structure/test_tools.py",
)


def unit(nodeid: str) -> str:
    """The unit that stays with one worker: a test's file, or all files that share a server."""
    file = nodeid.partition("::")[0]
    if file not in APART:
        for name, places in SHARED.items():
            if file.startswith(places):
                return name
    return file


def order(nodeids: Sequence[str]) -> Callable[[str], tuple[int, int]]:
    """The sort key of tests: the slowest first, then units by their number of tests."""
    tests = Counter(map(unit, nodeids))
    rank = {name: place for place, name in enumerate(SLOWEST)}

    def key(nodeid: str) -> tuple[int, int]:
        name = unit(nodeid)
        return rank.get(name, len(rank)), -tests[name]

    return key


class Scheduling(LoadFileScheduling):
    """xdist's scheduling by files, with our own units and order."""

    def __init__(self, config, log=None) -> None:
        super().__init__(config, log)
        # The workers have sorted what they collected.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
