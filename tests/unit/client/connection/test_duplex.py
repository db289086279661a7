"""Streams of publishers, channels and holders: a long outage is logged once."""

import logging

import pytest

from ackq import errors, limits
from ackq.client import Publisher
from ackq.client.connection import duplex
from tests.fakes import scripted_broker as fake

GONE = errors.BrokerUnavailableError("The broker is shutting down.")


@pytest.mark.parametrize(("told_after_s", "warnings"), [(0.0, 1), (60.0, 0)])
def test_a_long_wait_is_told_once(broker, monkeypatch, caplog, told_after_s, warnings):
    """A long wait logs one warning: `ackq publish` was silent for 61 s while a broker drained."""
    monkeypatch.setattr(limits, "RETRY_INITIAL_MS", 1)
    monkeypatch.setattr(duplex, "_TOLD_AFTER_S", told_after_s)
    broker.publishing.scripts.extend([fake.refusing(GONE)] * 3)
    with caplog.at_level(logging.INFO, "ackq"), Publisher(broker.endpoint) as out:
        out.publish(b"a", queue="q")
    waits = [each for each in caplog.records if "goes on trying" in each.message]
    assert [each.levelno for each in waits].count(logging.WARNING) == warnings
    assert len(waits) == 3
    assert GONE.message in waits[0].message
    assert len(broker.publishing.streams) == 4
