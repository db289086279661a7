"""Broker addresses, and errors of the AMQP library as messages."""

import ssl

import pytest
from aiormq import exceptions

from ackq import errors
from ackq_link.adapter import CutError
from ackq_link.address import Tls
from ackq_link.amqp091.address import BrokerAddress, connect, cut_of, parse_url

SECRET = "pa%40ss"


@pytest.mark.parametrize(
    "text", ["http://u:{}@h", "u:{}@h", "amqp://u:{}@", "amqp://u:{}@h:x", "amqp://u:{}@h?a=5"]
)
def test_no_url(text):
    """The error for an invalid URL does not show the password in it."""
    with pytest.raises(errors.InvalidArgumentError, match="amqp://HOST") as raised:
        parse_url(text.format(SECRET))
    assert SECRET not in str(raised.value)


def test_the_url_of_the_library(tmp_path):
    """Only the client library gets the password, from its file at each connect."""
    file = tmp_path / "password"
    address = BrokerAddress("amqp://h/v", "u", password_file=str(file), heartbeat_s=7)
    file.write_text("first\n")
    assert str(address.connect_url()) == "amqp://u:first@h/v?heartbeat=7"


def test_a_certificate_is_who_it_is():
    """L17: without a user SASL uses EXTERNAL, and errors name the certificate."""
    address = BrokerAddress("amqps://h/v", "", "", tls=Tls(cert="c.pem"), heartbeat_s=7)
    assert str(address.connect_url()) == "amqps://h/v?heartbeat=7&auth=external"
    cut = cut_of(exceptions.AuthenticationError("PLAIN", ["PLAIN"]), address)
    assert type(cut.refusal) is errors.UnauthenticatedError
    assert "refuses the client certificate c.pem" in cut.reason
    assert "rabbitmq_auth_mechanism_ssl" in cut.reason


def tls_failure():
    error = exceptions.AMQPConnectionError(1, "certificate verify failed")
    error.__cause__ = ssl.SSLError()
    return error


@pytest.mark.parametrize(
    ("error", "refusal", "remedy"),
    [
        (exceptions.ProbableAuthenticationError("x"), errors.UnauthenticatedError, "password-file"),
        (exceptions.ConnectionNotAllowed("no vhost v"), errors.PermissionDeniedError, "vhost v"),
        (exceptions.ChannelAccessRefused("x"), errors.PermissionDeniedError, "'q'"),
        (exceptions.ChannelNotFoundEntity("x"), errors.NotFoundError, "Declare it at that broker"),
        (tls_failure(), errors.TlsError, "names the authority"),
        (exceptions.IncompatibleProtocolError("x"), errors.InvalidArgumentError, "5672"),
    ],
)
def test_what_waiting_does_not_mend(error, refusal, remedy):
    """L17: a final error names the broker, the cause and the remedy."""
    cut = cut_of(error, BrokerAddress("amqp://h", "u", "hidden"), "q")
    assert type(cut.refusal) is refusal
    assert cut.reason.startswith("amqp://h: ")
    assert remedy in cut.reason


@pytest.mark.parametrize(
    "said",
    [
        "home node 'rabbit@h' of durable queue 'q' in vhost '/' is down or inaccessible",
        "failed to perform operation on queue 'q' in vhost '/' due to timeout",
        "queue 'q' in vhost '/' process is stopped by supervisor",
        "queue 'q' in vhost '/' has crashed and failed to restart",
    ],
)
def test_a_queue_that_is_down(said):
    """L17: RabbitMQ says NOT_FOUND of it, too, and it is waited for from the start."""
    for text in (said, f"NOT_FOUND - {said}"):
        cut = cut_of(exceptions.ChannelNotFoundEntity(text), BrokerAddress("amqp://h"), "q")
        assert (cut.refusal, said in cut.reason) == (None, True)
    absent = f"NOT_FOUND - no queue '{said}' in vhost '/'"
    cut = cut_of(exceptions.ChannelNotFoundEntity(absent), BrokerAddress("amqp://h"), said)
    assert type(cut.refusal) is errors.NotFoundError


@pytest.mark.parametrize(
    ("address", "refusal"),
    [
        (BrokerAddress("amqp://h", "u", password_file="none"), errors.InvalidArgumentError),
        (BrokerAddress("amqps://h", "u", tls=Tls(cert="none")), errors.TlsError),
    ],
)
async def test_files_that_cannot_be_read(address, refusal):
    """L17: that is a cut, which ends the link at its start alone."""
    with pytest.raises(CutError, match="none") as raised:
        await connect(address, "link", confirms=False)
    assert type(raised.value.refusal) is refusal


@pytest.mark.parametrize(
    ("text", "by_message"),
    [
        ("access to topic 'no.x' in exchange 'amq.topic' in vhost '/' refused for user 'u'", True),
        ("access to exchange 'access to topic ' in vhost '/' refused for user 'u'", False),
    ],
)
def test_a_routing_key_that_is_not_permitted(text, by_message):
    """L22: a refused topic is the message's; a refused exchange is that of all messages (L17)."""
    error = exceptions.ChannelAccessRefused(f"ACCESS_REFUSED - {text}")
    cut = cut_of(error, BrokerAddress("amqp://h"), "amq.topic")
    assert (cut.by_message, cut.refusal is None) == (by_message, by_message)
    assert text in cut.reason
