"""Links configured by a file, and by flags."""

import json

import pytest

from ackq.errors import InvalidArgumentError, UnknownOptionError
from ackq_link import configuration
from ackq_link.inbound import Inbound
from ackq_link.outbound import Outbound

INBOUND = {
    "name": "orders",
    "direction": "in",
    "broker": "amqp://u:hidden@h/v",
    "broker-queue": "there",
    "queue": "here",
    "ack": "stored",
}
OUTBOUND = {
    "name": "results",
    "direction": "out",
    "broker": "amqp://h",
    "broker-queue": "there",
    "queue": "here",
}


def written(tmp_path, *links, edge=""):
    path = tmp_path / "links.toml"
    tables = [[f"{name} = {json.dumps(value)}" for name, value in link.items()] for link in links]
    path.write_text("\n".join([edge, *("\n".join(["[[link]]", *table]) for table in tables)]))
    return path


def test_a_file_with_two(tmp_path):
    """A file with links of both directions and one edge for both."""
    file = written(tmp_path, INBOUND, OUTBOUND, edge='[edge]\nendpoint = "e:1"')
    inbound, outbound = configuration.read(file)
    assert isinstance(inbound, Inbound)
    assert isinstance(outbound, Outbound)
    assert (inbound.edge.broker.endpoint, inbound.edge.queue) == ("e:1", "here")
    assert "hidden" not in repr(inbound)


def test_the_guarantees():
    """L22: an outbound link states at least once, and how many messages a cut may double."""
    (outbound,) = configuration.of_flags({**OUTBOUND, "prefetch": 8})
    assert "at least once" in outbound.guarantee
    assert "8 of them" in outbound.guarantee


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "ack=settled: exactly once for messages with a message_id; of messages without one"),
        ({}, "a cut doubles at most the 7 whose acknowledgements are in doubt"),
        ({}, "acknowledged at the remote broker when settled in queue here"),
        ({"ack": "stored"}, "on the disk of 127.0.0.1:5775 alone"),
        ({"origin-key": "header:id"}, "exactly once for messages with a header id"),
        ({"on-ambiguous": "drop"}, "of messages without one a cut loses at most"),
        ({"origin-key": "fingerprint"}, "at least once; a cut doubles at most the 7"),
        ({"origin-key": "fingerprint", "on-ambiguous": "drop"}, "of identical ones a cut may lose"),
        ({"origin-key": "none"}, "at least once; a cut doubles the held messages, at most 7"),
        (
            {"on-reject": "there"},
            "queue here; messages rejected at the local broker are rejected at",
        ),
    ],
)
def test_the_guarantee_of_an_inbound_link(change, words):
    """L2, L7, L9: the guarantee follows from the key rule, and names the numbers in one line."""
    said = {**INBOUND, "broker": "amqp://h", "prefetch": 7, "ack": "settled", **change}
    (inbound,) = configuration.of_flags(said)
    assert words in inbound.guarantee
    assert "\n" not in inbound.guarantee


def test_what_is_said_of_the_other_queue(tmp_path):
    """L14, L15: given limits of the remote queue reach the source and the rules."""
    said = {
        **INBOUND,
        "ack": "settled",
        "delivery-limit": 3,
        "consumer-timeout": 60,
        "max-hold": 9,
        "on-max-hold": "fail",
        "accept-limit": True,
        "management": "http://h:15672",
    }
    (inbound,) = configuration.read(written(tmp_path, said))
    told = inbound.source.told
    assert (told.delivery_limit, told.consumer_timeout_s, told.dead_letters) == (3, 60, False)
    holding = inbound.rules.holding
    assert (holding.max_hold_s, holding.on_max_hold, holding.accept_limit) == (9, "fail", True)
    assert inbound.source.management is not None


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"prefetch": 0}, "from 1 to 65535"),
        ({"prefetch": 65_536}, "from 1 to 65535"),
        ({"ack": "never"}, "settled or stored"),
        ({"origin-key": "id"}, "header:NAME"),
        ({"on-ambiguous": "keep"}, "store or drop"),
        ({"on-max-hold": "wait"}, "renew or store or fail"),
        ({"max-hold": -1}, "give seconds"),
        ({"on-reject": "drop"}, "here or there or discard"),
        ({"on-reject": "there"}, "acknowledged at the remote broker cannot be rejected"),
        ({"on-reject": "discard"}, "Choose ack=settled, or on-reject=here"),
        ({"accept-limit": "yes"}, "true or false"),
        ({"management": "h:15672"}, "http://HOST"),
        ({"management": "http://u:hidden@h"}, "without a user"),
        ({"direction": "up"}, "in or out"),
        ({"broker": "http://h"}, "amqp://HOST"),
        ({"broker-queue": ""}, "broker-queue is missing"),
        ({"exchange": "x"}, "leave it out"),
        ({"ca": "file"}, "write amqps"),
        ({"heartbeat": 0}, "1 to 3600"),
        ({"window-bytes": 0}, "1 or more"),
        ({"name": ""}, "1 to 255"),
        ({"prefetch": "many"}, "must be a whole number"),
    ],
)
def test_bad_inbound_links(tmp_path, change, remedy):
    """L9, L19: refused with the link and the remedy, before the link runs."""
    with pytest.raises(InvalidArgumentError, match=remedy) as raised:
        configuration.read(written(tmp_path, {**INBOUND, **change}))
    assert "link 1" in str(raised.value)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"ack": "stored"}, "leave it out"),
        ({"origin-key": "none"}, "leave it out"),
        ({"delivery-limit": 0}, "leave it out"),
        ({"broker-queue": ""}, "either"),
        ({"exchange": "x"}, "either"),
        ({"routing-key": "k"}, "is for exchange"),
        ({"prefetch": 0}, "from 1 to 65535"),
    ],
)
def test_bad_outbound_links(tmp_path, change, remedy):
    """A bad outbound link is refused with the remedy."""
    with pytest.raises(InvalidArgumentError, match=remedy):
        configuration.read(written(tmp_path, {**OUTBOUND, **change}))


CERTIFIED = {"broker": "amqps://h", "cert": "c.pem", "key": "k.pem"}


@pytest.mark.parametrize(
    ("change", "user"), [({}, ""), ({"user": "u"}, "u"), ({"password-file": "p"}, "guest")]
)
def test_a_certificate_without_a_user(tmp_path, monkeypatch, change, user):
    """L17: the certificate names the user, unless a user or password is given."""
    monkeypatch.delenv(configuration.PASSWORD, raising=False)
    (link,) = configuration.read(written(tmp_path, {**INBOUND, **CERTIFIED, **change}))
    assert link.source.address.user == user


def test_a_certificate_is_no_login_of_the_api(tmp_path, monkeypatch):
    """L14: the management API needs a password, so a certificate alone is refused."""
    monkeypatch.delenv(configuration.PASSWORD, raising=False)
    file = written(tmp_path, {**INBOUND, **CERTIFIED, "management": "http://h:1"})
    with pytest.raises(InvalidArgumentError, match="leave management out and give delivery-limit"):
        configuration.read(file)


def test_two_of_one_name(tmp_path):
    """Two links of one name are refused with the name."""
    with pytest.raises(InvalidArgumentError, match="2 links of the name 'orders'"):
        configuration.read(written(tmp_path, INBOUND, INBOUND))


def test_an_unknown_key(tmp_path):
    """The error names the nearest known key."""
    with pytest.raises(UnknownOptionError, match="Did you mean prefetch"):
        configuration.read(written(tmp_path, {**INBOUND, "prefech": 5}))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("", "no link"), ("[[link]", "not TOML"), ("link = 5", "no link"), ("link = [5]", "a table")],
)
def test_bad_files(tmp_path, text, remedy):
    """The error names the cause: no TOML, no link, or no table."""
    path = tmp_path / "links.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=remedy):
        configuration.read(path)


def test_a_file_that_is_not_there(tmp_path):
    """The error names the missing file."""
    with pytest.raises(InvalidArgumentError, match=r"none\.toml cannot be read"):
        configuration.read(tmp_path / "none.toml")


def test_a_password_in_a_flag():
    """A password in a flag is refused, as `ps` shows it; the error names the alternatives."""
    with pytest.raises(InvalidArgumentError, match="password-file") as raised:
        configuration.of_flags(INBOUND)
    assert "hidden" not in str(raised.value)
