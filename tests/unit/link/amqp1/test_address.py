"""Addresses of AMQP 1.0 brokers, and errors made of their refusals."""

import ssl

import pytest

from ackq import errors
from ackq_link.address import Tls
from ackq_link.amqp1 import address as module
from ackq_link.amqp1.address import Amqp1Address, Condition, cut_of


def test_the_parts_of_a_url():
    """Ports have defaults, and the virtual host; without password there is another mechanism."""
    address = Amqp1Address("amqp://h:5/a%2Fb")
    assert (address.host, address.port, address.virtual_host) == ("h", 5, "a/b")
    plain, secure = Amqp1Address("amqp://h"), Amqp1Address("amqps://h", tls=Tls(cert="file"))
    assert (plain.secure, plain.port, plain.mechanism) == (False, 5672, "ANONYMOUS")
    assert (secure.secure, secure.port, secure.mechanism) == (True, 5671, "EXTERNAL")
    assert plain.virtual_host == "h"
    assert Amqp1Address("amqps://h", "u", tls=secure.tls).mechanism == "PLAIN"


NO_QUEUES = Condition("amqp:illegal-state", "Address q is not configured for queue support")


@pytest.mark.parametrize(
    ("error", "refusal", "remedy"),
    [
        (Condition(module.SASL_FAILED, ""), errors.UnauthenticatedError, "password-file"),
        (Condition(module.OTHER_PROTOCOL, ""), errors.InvalidArgumentError, "5672"),
        (Condition("amqp:unauthorized-access", "no"), errors.PermissionDeniedError, "'q'"),
        (Condition("amqp:not-found", "none"), errors.NotFoundError, "Create it at that broker"),
        (NO_QUEUES, errors.PreconditionFailedError, "ADDRESS::QUEUE"),
        (ssl.SSLError(1, "certificate verify failed"), errors.TlsError, "names the authority"),
        (ConnectionAbortedError("SSL handshake is taking long"), errors.TlsError, "speaks TLS"),
    ],
)
def test_what_waiting_does_not_mend(error, refusal, remedy):
    """L17: a final error names the broker, the cause and the remedy."""
    cut = cut_of(Amqp1Address("amqps://h", "u", "hidden"), error, "q")
    assert type(cut.refusal) is refusal
    assert remedy in cut.reason
    assert "hidden" not in cut.reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Condition("amqp:connection:forced", "down"), "amqp://h: amqp:connection:forced: down"),
        (TimeoutError(), "amqp://h: TimeoutError"),
    ],
)
def test_what_passes(error, reason):
    """L17: a lost connection is a cut without a refusal."""
    cut = cut_of(Amqp1Address("amqp://h"), error)
    assert (cut.refusal, cut.reason) == (None, reason)
