"""The rules and panels in `broker_stub/monitoring` use only metrics that a broker serves."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import ackq_broker
from ackq.v1 import consuming_pb2
from ackq_link.edge import AsyncLink
from tests.fakes.raw_client import Client, holder
from tests.wire.operations.test_metrics import scrape

MONITORING = Path(__file__).parents[3] / "broker_stub/monitoring"
# The labels that Prometheus adds to scraped samples.
ADDED = {"instance", "job"}

_NAME = re.compile(r"\b((?:ackq|process)_[a-z_]+)\b")
_SELECTOR = re.compile(r"\b(ackq_[a-z_]+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def rules():
    (group,) = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    return group["rules"]


def panels():
    return json.loads((MONITORING / "grafana.json").read_text())["panels"]


EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in rules()},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    },
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The labels of each metric, one set per sample, of a broker with some of everything."""
    with (
        ackq_broker.embedded(tmp_path_factory.mktemp("served") / "data", http=True) as broker,
        Client(broker.endpoint) as client,
    ):
        client.declare("dead")
        client.declare("q", dead_letter_queue="dead")
        client.publish(b"a", b"b", b"c")
        with client.consume() as channel:
            channel.get(messages=1)
            channel.deliveries(1)
            channel.settled(channel.settle(1, consuming_pb2.OUTCOME_REJECTED))
        client.open(holder(), queues=["q"])
        asyncio.run(_opened_once(broker.endpoint))
        found = {}
        for path in ("/metrics", "/metrics/queues"):
            for name, values in scrape(broker, path).items():
                found.setdefault(name, []).extend({*dict(labels)} for labels in values)
        return found


async def _opened_once(endpoint):
    """Runs a link once."""
    async with AsyncLink(endpoint, link="l", source="there", queue="q"):
        pass


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_what_is_asked_for_is_served(served, expression):
    """M2: each name in an expression is a served metric, and each label one of its labels."""
    names = set(_NAME.findall(expression))
    assert names
    assert names - set(served) == set()
    for name, matchers in _SELECTOR.findall(expression):
        for label, operator, value in _MATCHER.findall(matchers):
            if label in ADDED:
                continue
            assert any(label in labels for labels in served[name])
            if (operator, value) == ("=", ""):  # all together: the sample without that label
                assert any(label not in labels for labels in served[name])
    known = ADDED.union(*(labels for name in names for labels in served[name]))
    for grouping in _GROUPING.findall(expression):
        assert {label.strip() for label in grouping.split(",")} <= known


def test_the_check_finds_what_is_not_there(served):
    """M2: the check itself finds a misspelt metric, label and grouping."""
    good = 'sum by (cause) (ackq_queue_messages_dead_lettered_total{queue=""})'
    test_what_is_asked_for_is_served(served, good)
    for wrong in (
        good.replace("lettered", "leterred"),
        good.replace("queue=", "queues="),
        good.replace("by (cause)", "by (reason)"),
    ):
        with pytest.raises(AssertionError):
            test_what_is_asked_for_is_served(served, wrong)


def test_each_rule_says_what_to_do():
    """M2, L26: each alert rule has a severity, a summary and a description."""
    assert [rule["alert"] for rule in rules()] == [
        *("AckqOldestMessage", "AckqLeaseAge", "AckqAttaches"),
        *("AckqDisk", "AckqSync", "AckqDeadLetters"),
        *("AckqLinkAbsent", "AckqLinkHeldAge", "AckqLinkLives"),
        *("AckqLinkRefused", "AckqLinkDoubt"),
    ]
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} == set(rule["annotations"])


def test_panels_stand_side_by_side():
    """M2: dashboard panels do not overlap, and use a data source that the reader chooses."""
    taken = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert labels <= {"instance", "cause", "queue", "session", "link", "kind", "reason"}


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")]
)
def test_as_prometheus_sees_it(arguments):
    """M2: the alert rules are valid, and each fires when it should and not before."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("not installed: promtool; apt-get install prometheus")
    done = subprocess.run(
        [promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
