"""The rules and panels in `broker_stub/monitoring` use only metrics that a broker serves."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import ackq_broker
from ackq.v1 import consuming_pb2
from tests.fakes.raw_client import Client, holder
from tests.fakes.raw_link import RawLink
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
            channel.pull()
            channel.settled(channel.settle(1, consuming_pb2.OUTCOME_REJECTED))
        client.open(holder(), queues=["q"])
        RawLink(client).close()
        found = {}
        for path in ("/metrics", "/metrics/queues"):
            for name, values in scrape(broker, path).items():
                found.setdefault(name, []).extend({*dict(labels)} for labels in values)
        return found


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


def test_each_rule_says_what_to_do():
    """M2, L26: each alert rule has a severity, a summary and a description."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} == set(rule["annotations"])


def test_panels_have_the_data_source_that_the_reader_chooses():
    """M2: dashboard panels use a data source that the reader chooses, and known labels."""
    for panel in panels():
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
