"""The tables of this folder match the scenarios: every rule, every broker, every reason."""

import importlib
import inspect
from pathlib import Path

import pytest

from tests.wire import differences
from tests.wire.differences import ABSENT, DIFFERENCES, Difference, Differences
from tests.wire.table import RULES, rules_of

ROOT = Path(__file__).parents[2]


def scenarios():
    """The tests of this folder that take a broker by its dialect, by name."""
    found = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name, function in vars(importlib.import_module(module)).items():
            takes = inspect.signature(function).parameters if name.startswith("test_") else ()
            if {"bench", "ackq"} & set(takes):
                assert name not in found, f"{name} stands twice"
                found[name] = function
    return found


SCENARIOS = scenarios()


def rules_with(fixture):
    """The rules of the scenarios that use a fixture."""
    return {
        rule
        for function in SCENARIOS.values()
        if fixture in inspect.signature(function).parameters
        for rule in rules_of(function.__doc__)
    }


def test_every_scenario_names_its_rules():
    """A scenario's docstring begins with rules that exist."""
    for name, function in SCENARIOS.items():
        rules = rules_of(function.__doc__)
        assert rules, name
        assert set(rules) <= set(RULES), name


def test_every_rule_has_a_scenario():
    """P1-P14, C1-C17, Q1-Q9: every rule has a scenario."""
    assert rules_with("bench") | rules_with("ackq") == set(RULES)


def test_a_rule_runs_on_rabbitmq_or_has_a_reason():
    """Each rule runs on RabbitMQ, or has a reason for its absence, and not both."""
    assert rules_with("bench") | set(ABSENT) == set(RULES)
    assert rules_with("bench") & set(ABSENT) == set()


def test_every_difference_is_of_a_scenario():
    """Each listed difference belongs to a scenario and a rule of it."""
    for name, entry in DIFFERENCES.items():
        scenario = SCENARIOS[name]
        assert entry.rule in rules_of(scenario.__doc__), entry
        assert "bench" in inspect.signature(scenario).parameters, entry


KNOWN = {"test_x": Difference("colour", "blue", "P1: because")}


def test_a_listed_difference_is_exact(monkeypatch):
    """A listed difference must match exactly; any other deviation from the rule fails."""
    monkeypatch.setattr(differences, "DIFFERENCES", KNOWN)
    listed = Differences("rabbitmq", "test_x")
    listed.expect("colour", "blue", "red")
    listed.expect("size", 1, 1)
    listed.finished()
    with pytest.raises(AssertionError, match="listed"):
        listed.expect("colour", "green", "red")
    with pytest.raises(AssertionError, match="by rule"):
        Differences("ackq", "test_x").expect("colour", "blue", "red")


def test_a_difference_that_went_away_fails(monkeypatch):
    """A listed difference that no longer occurs, or is not checked, fails the scenario."""
    monkeypatch.setattr(differences, "DIFFERENCES", KNOWN)
    with pytest.raises(AssertionError, match="keeps the rule now"):
        Differences("rabbitmq", "test_x").expect("colour", "red", "red")
    with pytest.raises(AssertionError):
        Differences("rabbitmq", "test_x").finished()
