"""Links configured for NATS JetStream."""

import pytest

from ackq.errors import InvalidArgumentError
from ackq_link import configuration
from tests.optional import needs
from tests.unit.link import test_configuration as configuration_tests

needs("nats", "nats")

NATS = {**configuration_tests.OUTBOUND, "protocol": "nats", "broker": "nats://u@h"}
INBOUND = {**NATS, "direction": "in", "broker-queue": "ORDERS/link"}
OUTBOUND = {**NATS, "broker-queue": "ORDERS"}


def test_nats():
    """L1, L2, L30: the source is a stream and a consumer, its keys positions, unless chosen."""
    (inbound,) = configuration.of_flags(INBOUND)
    assert inbound.source.identity == "nats://h:4222, stream ORDERS, consumer link"
    assert (inbound.source.address.user, inbound.rules.key.is_position) == ("u", True)
    assert "exactly once, by the positions" in inbound.guarantee
    inbound.source.seen.created = "monday"
    assert "stream ORDERS created monday" in inbound.source.identity
    (outbound,) = configuration.of_flags({**OUTBOUND, "routing-key": "a.b", "prefetch": 7})
    assert (outbound.target.subject, outbound.target.limits.window_messages) == ("a.b", 7)
    for key in ("fingerprint", "message_id"):
        (inbound,) = configuration.of_flags({**INBOUND, "origin-key": key})
        assert not inbound.rules.key.is_position
    (secure,) = configuration.of_flags({**INBOUND, "broker": "tls://h", "cert": "c", "key": "k"})
    assert secure.source.address.secure
    assert secure.source.address.who == "the client certificate c"


@pytest.mark.parametrize(
    ("link", "change", "remedy"),
    [
        (INBOUND, {"broker": "amqp://h"}, "nats://HOST"),
        (INBOUND, {"broker": "nats://u:p@h"}, "has a password"),
        (INBOUND, {"ca": "c"}, "write tls"),
        (INBOUND, {"broker-queue": "A.B/c"}, "STREAM/CONSUMER"),
        (INBOUND, {"protocol": "amqp091", "broker": "amqp://h", "origin-key": "position"}, "nats"),
        (OUTBOUND, {"exchange": "x"}, "leave it out"),
        (OUTBOUND, {"broker-queue": "A/b"}, "STREAM"),
    ],
)
def test_what_is_refused(link, change, remedy):
    """L17: refused with the remedy, before the link runs."""
    with pytest.raises(InvalidArgumentError, match=remedy) as found:
        configuration.of_flags({**link, **change})
    assert "nats://u" not in str(found.value)
