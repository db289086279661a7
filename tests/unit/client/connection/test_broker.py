"""`Broker`, the value of a connection's settings, and its construction from arguments."""

import pytest

from ackq import limits
from ackq.client import Broker, Security
from ackq.client.connection.broker import SETTINGS
from ackq.errors import InvalidArgumentError

TLS = Security(tls=True)


def test_a_broker_is_complete():
    """Arguments given next to a `Broker` would have no effect, so they are refused."""
    broker = Broker("broker:1", TLS, None)
    assert Broker.of(broker) is broker
    assert Broker.of(broker, None, limits.RETRY_TOTAL_MS) is broker
    for more in ({"security": Security()}, {"retry_ms": None}):
        with pytest.raises(InvalidArgumentError, match="give them to the Broker"):
            Broker.of(broker, **more)


def test_each_setting_is_a_field_of_security():
    """Each setting (option, flag, variable) is a field of `Security`, and each field a setting."""
    assert {each.field for each in SETTINGS} == set(Security.__dataclass_fields__)
