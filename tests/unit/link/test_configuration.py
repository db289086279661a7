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
CERTIFIED = {"broker": "amqps://h", "cert": "c.pem", "key": "k.pem"}


@pytest.fixture(autouse=True)
def _no_password(monkeypatch):
    monkeypatch.delenv(configuration.PASSWORD, raising=False)


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
        ({"on-reject": "there"}, "here; messages rejected at the local broker are rejected at"),
        (None, "at least once"),
        (None, "7 of them"),
    ],
)
def test_the_guarantee_of_a_link(change, words):
    """L2, L7, L9, L22: the guarantee follows from the key rule, and names its numbers."""
    said = {**INBOUND, "broker": "amqp://h", "prefetch": 7, "ack": "settled", **(change or {})}
    (link,) = configuration.of_flags({**OUTBOUND, "prefetch": 7} if change is None else said)
    assert words in link.guarantee
    assert "\n" not in link.guarantee


def test_what_is_said_of_the_other_queue(tmp_path):
    """L14, L15: given limits of the remote queue reach the source and the rules."""
    limits = {"delivery-limit": 3, "consumer-timeout": 60, "management": "http://h:15672"}
    rules = {"max-hold": 9, "on-max-hold": "fail", "accept-limit": True}
    (inbound,) = configuration.read(written(tmp_path, INBOUND | limits | rules))
    told = inbound.source.told
    assert (told.delivery_limit, told.consumer_timeout_s, told.dead_letters) == (3, 60, False)
    holding = inbound.rules.holding
    assert (holding.max_hold_s, holding.on_max_hold, holding.accept_limit) == (9, "fail", True)
    assert inbound.source.management is not None


MANAGED = CERTIFIED | {"management": "http://h:1"}


@pytest.mark.parametrize(
    ("link", "change", "remedy"),
    [
        (INBOUND, {"prefetch": 0}, "from 1 to 65535"),
        (INBOUND, {"origin-key": "id"}, "header:NAME"),
        (INBOUND, {"max-hold": -1}, "give seconds"),
        (INBOUND, {"on-reject": "there"}, "acknowledged at the remote broker cannot be rejected"),
        (INBOUND, {"on-reject": "discard"}, "Choose ack=settled, or on-reject=here"),
        (INBOUND, {"accept-limit": "yes"}, "true or false"),
        (INBOUND, {"management": "h:15672"}, "http://HOST"),
        (INBOUND, {"management": "http://u:hidden@h"}, "without a user"),
        (INBOUND, MANAGED, "leave management out and give delivery-limit"),
        (INBOUND, {"direction": "up"}, "in or out"),
        (INBOUND, {"broker-queue": ""}, "broker-queue is missing"),
        (INBOUND, {"exchange": "x"}, "leave it out"),
        (INBOUND, {"ca": "file"}, "write amqps"),
        (INBOUND, {"window-bytes": 0}, "1 or more"),
        (INBOUND, {"name": ""}, "1 to 255"),
        (INBOUND, {"prefetch": "many"}, "must be a whole number"),
        (OUTBOUND, {"ack": "stored"}, "leave it out"),
        (OUTBOUND, {"delivery-limit": 0}, "leave it out"),
        (OUTBOUND, {"exchange": "x"}, "either"),
        (OUTBOUND, {"routing-key": "k"}, "is for exchange"),
    ],
)
def test_bad_links(tmp_path, link, change, remedy):
    """L9, L19: refused with the link and the remedy, before the link runs."""
    with pytest.raises(InvalidArgumentError, match=remedy) as raised:
        configuration.read(written(tmp_path, {**link, **change}))
    assert "link 1" in str(raised.value)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("password", [None, "of another link"])
def test_a_certificate_without_a_user(tmp_path, monkeypatch, password):
    """L17: the certificate names the user, unless a user or password is given to this link."""
    if password is not None:
        monkeypatch.setenv(configuration.PASSWORD, password)
    for change, user in (({}, ""), ({"user": "u"}, "u"), ({"password-file": "p"}, "guest")):
        (link,) = configuration.read(written(tmp_path, {**INBOUND, **CERTIFIED, **change}))
        assert link.source.address.user == user
        given = {"": "", "u": password or "guest", "guest": "guest"}[user]
        assert link.source.address.password == given


def test_names(tmp_path):
    """Two links of one name are refused with the name; for an unknown key the nearest is named."""
    with pytest.raises(InvalidArgumentError, match="2 links of the name 'orders'"):
        configuration.read(written(tmp_path, INBOUND, INBOUND))
    with pytest.raises(UnknownOptionError, match="Did you mean prefetch"):
        configuration.read(written(tmp_path, {**INBOUND, "prefech": 5}))
    with pytest.raises(InvalidArgumentError, match=r"links\.toml cannot be read"):
        configuration.read(tmp_path / "no" / "links.toml")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("", "no link"), ("[[link]", "not TOML"), ("link = 5", "no link"), ("link = [5]", "a table")],
)
def test_bad_files(tmp_path, text, remedy):
    """The error names the cause: no file, no TOML, no link, or no table."""
    path = tmp_path / "links.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=remedy):
        configuration.read(path)
