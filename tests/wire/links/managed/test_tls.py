"""Links over TLS to a real RabbitMQ, which identifies users by certificate (SASL EXTERNAL)."""

from pathlib import Path

import pytest

from tests.eventually import equals
from tests.fakes.certificates import Authority
from tests.wire.links.conftest import eventually
from tests.wire.links.managed.node import PASSWORD, password_file
from tests.wire.links.test_inbound import inbound


@pytest.fixture
def identity(node, user_of):
    """A certificate of a user of the node: (keys of a link, the user)."""
    user = user_of()
    return keys_of(node, node.authority.issue(user=user)), user


def keys_of(node, identity):
    """A link's options for its certificate and the trusted authority."""
    return {"ca": node.authority.ca, "cert": identity.cert, "key": identity.key}


@pytest.fixture
def encrypted(node, queue_of, links, edge):
    """A function that starts a TLS link without user, and its queue, which has messages."""
    queue = queue_of("quorum")
    queue.publish(range(3))

    def start(**keys):
        return inbound(links, queue, edge, **{"broker": node.url, **keys})

    return start, queue


def refused(link, queue, edge):
    """The last line of a link that was refused, took nothing, and logged no key."""
    assert eventually("its end", lambda: link.ended) == 2
    assert edge.ready == 0
    assert queue.ready == 3
    assert "PRIVATE KEY" not in link.log
    assert PASSWORD not in link.log
    return link.log.splitlines()[-1]


def test_external(edge, encrypted, identity):
    """L17: without user and password a link is identified by its certificate."""
    start, _ = encrypted
    keys, _ = identity
    link = start(**keys)
    eventually("the messages", lambda: edge.ready, equals(3))
    assert link.stop() == 0
    assert edge.ids == [0, 1, 2]


def test_external_out(node, queue_of, links, edge, identity):
    """L22: an outbound link is identified by its certificate, with that user's permissions."""
    keys, user = identity
    node.allow(user, write=".*")
    queue = queue_of("quorum")
    edge.publish(range(3))
    link = links(
        edge=edge.endpoint,
        direction="out",
        broker=node.url,
        broker_queue=queue.queue,
        queue="q",
        **keys,
    )
    eventually("the remote messages", lambda: queue.ready, equals(3))
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


def test_a_certificate_of_nobody(node, edge, encrypted):
    """L17: a certificate of an unknown user is refused, naming the plugin."""
    start, queue = encrypted
    stranger = node.authority.issue(user="stranger")
    end = refused(start(**keys_of(node, stranger)), queue, edge)
    assert f"refuses the client certificate {stranger.cert}" in end
    assert "rabbitmq_auth_mechanism_ssl" in end


def test_a_certificate_without_permission(node, user_of, edge, encrypted):
    """L17: a certificate of a user without permission is refused, with the remedy."""
    start, queue = encrypted
    keys = keys_of(node, node.authority.issue(user=user_of(read="^$")))
    end = refused(start(**keys), queue, edge)
    assert f"has no permission for '{queue.queue}'" in end
    assert "rabbitmqctl set_permissions" in end


def test_no_client_certificate(node, edge, encrypted):
    """L17: a missing client certificate is refused, naming the options for it."""
    start, queue = encrypted
    end = refused(start(ca=node.authority.ca), queue, edge)
    assert "wants a client certificate: name its PEM files with cert and key" in end


@pytest.mark.parametrize("how", ["expired", "of another authority"])
def test_a_client_certificate_that_is_refused(node, edge, encrypted, tmp_path, how):
    """L17: a refused client certificate is named, as the broker gives no reason."""
    start, queue = encrypted
    if how == "expired":
        identity = node.authority.issue(user="late", from_day=-3, to_day=-1)
    else:
        identity = Authority(tmp_path / "other").issue(user="late")
    end = refused(start(**keys_of(node, identity)), queue, edge)
    assert "The broker refuses the client certificate" in end


def test_another_authority(edge, encrypted, identity, tmp_path):
    """L17: a broker certificate of an untrusted authority ends the link, naming the option."""
    start, queue = encrypted
    keys, _ = identity
    other = Authority(tmp_path / "other")
    end = refused(start(**{**keys, "ca": other.ca}), queue, edge)
    assert "Name the PEM file of the authority that signed the broker's certificate with ca" in end


def test_another_host_name(node, edge, encrypted, identity):
    """L17: a broker certificate with another name than the URL ends the link."""
    start, queue = encrypted
    keys, _ = identity
    end = refused(start(**keys, broker=f"amqps://localhost:{node.tls_port}"), queue, edge)
    assert "Hostname mismatch" in end
    assert "Write the URL with a name that the broker's certificate has" in end


def test_a_broker_whose_certificate_has_expired(node, edge, encrypted, identity):
    """L17: an expired broker certificate ends the link at its start; renewed, the link works."""
    start, queue = encrypted
    keys, _ = identity
    node.show("127.0.0.1", from_day=-3, to_day=-1)
    try:
        link = start(**keys)
        end = refused(link, queue, edge)
        assert "certificate has expired" in end
        assert "Renew the broker's certificate" in end
    finally:
        node.show("127.0.0.1")
    link.start()
    eventually("the messages", lambda: edge.ready, equals(3))
    assert link.stop() == 0
