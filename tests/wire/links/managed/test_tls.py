"""Links over TLS to a real RabbitMQ, which identifies users by certificate (SASL EXTERNAL)."""

import re
from pathlib import Path

import pytest

from tests.eventually import equals
from tests.fakes.certificates import Authority
from tests.wire.links.conftest import ANOTHER_BROKER, eventually, filled, refused
from tests.wire.links.managed.node import PASSWORD, password_file


@pytest.fixture
def identity(node, user_of):
    """A certificate of a user of the node: (keys of a link, the user)."""
    user = user_of()
    return keys_of(node, node.authority.issue(user=user)), user


def keys_of(node, identity):
    """A link's options for its certificate and the trusted authority."""
    return {"ca": node.authority.ca, "cert": identity.cert, "key": identity.key}


@pytest.fixture
def encrypted(node, queue_of, linked):
    """A function that starts a TLS link without user, and its queue, which has messages."""
    queue = queue_of("quorum")
    queue.publish(range(3))

    def start(**keys):
        return linked(queue, **{"direction": "in", "broker": node.url, **keys})

    return start, queue


def test_external(node, edge, encrypted, identity):
    """L17, L22: a link is identified by its certificate, and has that user's permissions."""
    start, queue = encrypted
    keys, user = identity
    link = start(**keys)
    eventually("the messages", lambda: edge.ready, equals(3))
    assert link.stop() == 0
    node.allow(user, write=".*")
    link = start(direction="out", **keys)
    eventually("the remote messages", lambda: queue.ready, equals(6))
    assert link.stop() == 0


def test_a_password_within_tls(edge, encrypted, identity, tmp_path):
    """L17: with a user and password in TLS that user is authenticated; no process shows it."""
    start, _ = encrypted
    keys, user = identity
    link = start(**keys, user=user, password_file=password_file(tmp_path))
    eventually("the messages", lambda: edge.ready, equals(3))
    shown = Path(f"/proc/{link.pid}/cmdline").read_bytes()
    assert PASSWORD.encode() not in shown
    assert link.stop() == 0
    assert PASSWORD not in link.log


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("of nobody", "refuses the client certificate {cert}.*rabbitmq_auth_mechanism_ssl"),
        (
            "without permission",
            "has no permission for '{queue}'.*rabbitmqctl set_permissions",
        ),
        ("missing", "wants a client certificate: name its PEM files with cert and key"),
        ("expired", "The broker refuses the client certificate"),
        ("of another authority", "The broker refuses the client certificate"),
    ],
)
def test_a_client_certificate_that_is_refused(node, user_of, edge, encrypted, tmp_path, how, told):
    """L17: a refused client certificate is named, with the remedy if the broker gives a reason."""
    start, queue = encrypted
    authority, user, days = node.authority, "stranger", {}
    if how == "without permission":
        user = user_of(read="^$")
    elif how == "expired":
        days = {"from_day": -3, "to_day": -1}
    elif how == "of another authority":
        authority = Authority(tmp_path / "other")
    keys = keys_of(node, authority.issue(user=user, **days))
    given = {"ca": keys["ca"]} if how == "missing" else keys
    end = refused(start(**given), edge)
    assert re.search(told.format(cert=keys["cert"], queue=queue.queue), end)
    assert queue.ready == 3


@ANOTHER_BROKER
def test_another_broker(node, edge, encrypted, identity, tmp_path, change, told):
    """L17: a broker certificate that proves nothing ends the link, naming the option."""
    start, queue = encrypted
    places = {"other": Authority(tmp_path / "other").ca, "port": node.tls_port}
    assert re.search(told, refused(start(**{**identity[0], **filled(change, **places)}), edge))
    assert queue.ready == 3
