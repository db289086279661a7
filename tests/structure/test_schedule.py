"""The order of the tests, and the units that stay with one worker."""

import pytest

from tests import schedule
from tests.rules import ROOT


def test_what_is_named_is_there():
    """Every file that the schedule names exists: a renamed one would come last again."""
    places = {place for each in schedule.SHARED.values() for place in each}
    named = places | schedule.APART | {*schedule.SLOWEST} - schedule.SHARED.keys()
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/unit/test_text.py::test_a[x::y]", "tests/unit/test_text.py"),
        ("tests/spark/test_sink.py::test_a", "Spark"),
        ("tests/spark/test_readme.py::test_a", "tests/spark/test_readme.py"),
        ("tests/spark/test_clusters.py::test_a", "tests/spark/test_clusters.py"),
        ("tests/unit/spark/test_task.py::test_a", "tests/unit/spark/test_task.py"),
        ("tests/wire/queues/test_queues.py::test_a[ackq]", "RabbitMQ"),
        ("tests/wire/links/test_source.py::test_a", "RabbitMQ"),
        ("tests/wire/links/test_inbound.py::test_a", "RabbitMQ, links"),
        ("tests/wire/links/managed/test_tls.py::test_a", "managed RabbitMQ"),
        ("tests/wire/sessions/test_sessions.py::test_a", "tests/wire/sessions/test_sessions.py"),
    ],
)
def test_units(nodeid, unit):
    """A file is a unit, and so are all files that share a server."""
    assert schedule.unit(nodeid) == unit


def test_order():
    """Long units come as listed, others by their number of tests, tests in their own order."""
    expected = [
        "tests/spark/test_sink.py::b",
        "tests/spark/test_errors.py::a",
        "tests/e2e/test_jobs.py::c",
        "tests/e2e/test_examples.py::a",
        "tests/wire/test_many.py::c",
        "tests/wire/test_many.py::a",
        "tests/unit/test_one.py::a",
    ]
    mixed = [expected[at] for at in (6, 0, 2, 4, 1, 3, 5)]
    assert sorted(mixed, key=schedule.order(mixed)) == expected
