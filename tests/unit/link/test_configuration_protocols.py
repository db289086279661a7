"""Links configured for AMQP 1.0."""

import sys

import pytest

from ackq.errors import InvalidArgumentError
from ackq_link import configuration
from tests.optional import needs
from tests.unit.link import test_configuration as configuration_tests

needs("proton", "amqp1")

pytestmark = pytest.mark.servers

OUTBOUND = {**configuration_tests.OUTBOUND, "protocol": "amqp1", "broker": "amqp://u@h/v"}
INBOUND = {**OUTBOUND, "direction": "in"}


def test_amqp_1():
    """L1: the source's identity is protocol, address and queue."""
    (inbound,) = configuration.of_flags(INBOUND)
    assert inbound.source.identity == "amqp1://h:5672/v, queue there"
    assert inbound.source.address.user == "u"
    (outbound,) = configuration.of_flags({**OUTBOUND, "prefetch": 7})
    assert (outbound.target.queue, outbound.target.limits.window_messages) == ("there", 7)


@pytest.mark.parametrize(
    ("link", "change", "remedy"),
    [
        (INBOUND, {"protocol": "mqtt"}, "amqp091 or amqp1"),
        (INBOUND, {"management": "http://h"}, "leave it out"),
        (INBOUND, {"prefetch": 0}, "from 1 to 65535"),
        (OUTBOUND, {"exchange": "x"}, "leave it out"),
    ],
)
def test_what_is_refused(link, change, remedy):
    """L19: refused with the remedy, before the link runs."""
    with pytest.raises(InvalidArgumentError, match=remedy):
        configuration.of_flags({**link, **change})


def test_without_the_library(monkeypatch):
    """Without the library the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "proton", None)
    with pytest.raises(InvalidArgumentError, match=r"pip install .*\[amqp1\]'"):
        configuration.of_flags(INBOUND)
