"""A producer whose remote broker is silent, tested without a broker."""

import time
from types import SimpleNamespace

import pytest

from tests.libraries import replace
from tests.optional import needs

needs("proton", "amqp1")
pytestmark = pytest.mark.servers

from ackq_link.amqp1 import target  # noqa: E402


def test_a_silent_broker_is_told(monkeypatch):
    """L26: Artemis gives no reason when an address is full, so an overdue answer is reported."""
    now = [100.0]
    replace(monkeypatch, target, time, monotonic=lambda: now[0])
    producer = target.Amqp1Producer(SimpleNamespace(product="", cut=None), None)
    assert producer.blocked == ""
    producer._under_way["1"], producer._answered_s = (None, 0), 100.0
    now[0] += target._SILENT_S
    assert producer.blocked == ""
    now[0] += 1
    assert producer.blocked == "no answer for 11 s"
