"""Links over TLS to a real Qpid, which identifies users by certificate (SASL EXTERNAL)."""

import re

import pytest

from tests.fakes.certificates import Authority
from tests.optional import needs

needs("proton", "amqp1")

from tests.eventually import equals  # noqa: E402
from tests.wire.links.amqp1.servers import USER  # noqa: E402
from tests.wire.links.conftest import ANOTHER_BROKER, eventually, filled, refused  # noqa: E402


@pytest.fixture
def encrypted(qpid, linked, amqp1_authority):
    """Returns a function that starts a TLS link with a certificate; its queue has 3 messages."""
    qpid.publish(range(3))

    def start(identity, **keys):
        given = {"direction": "in", "password_file": None, "ca": amqp1_authority.ca}
        given["broker"] = f"amqps://127.0.0.1:{qpid.server.tls_port}"
        if identity:
            given |= {"cert": identity.cert, "key": identity.key}
        return linked(qpid, **{**given, **keys})

    return start


def test_external(encrypted, qpid, edge, amqp1_authority):
    """L17, L22: without user and password a link is identified by its certificate, in and out."""
    identity = amqp1_authority.issue(user=USER)
    link = encrypted(identity)
    eventually("the messages", lambda: edge.ready, equals(3))
    assert link.stop() == 0
    link = encrypted(identity, direction="out")
    eventually("the remote messages", lambda: qpid.ids, equals([0, 1, 2] * 2))
    assert link.stop() == 0


@pytest.mark.parametrize("how", ["missing", "expired", "of another authority"])
def test_a_client_certificate_that_is_refused(
    encrypted, qpid, edge, amqp1_authority, tmp_path, how
):
    """L17: a refused client certificate, for which Qpid gives no reason, is a cut with a hint."""
    identity = {
        "missing": None,
        "expired": amqp1_authority.issue(user=USER, from_day=-3, to_day=-1),
        "of another authority": Authority(tmp_path / "other").issue(user=USER),
    }[how]
    link = encrypted(identity)
    hint = "If it wants a client certificate, name one that it trusts with cert and key"
    told = (hint, "The broker refuses the client certificate")
    eventually("the hint", lambda: any(each in link.log for each in told))
    link.end()
    assert edge.ready == 0
    assert len(qpid.ids) == 3
    assert "PRIVATE KEY" not in link.log


@ANOTHER_BROKER
def test_another_broker(encrypted, qpid, edge, amqp1_authority, tmp_path, change, told):
    """L17: a broker certificate that proves nothing ends the link, naming the option."""
    places = {"other": Authority(tmp_path / "other").ca, "port": qpid.server.tls_port}
    link = encrypted(amqp1_authority.issue(user=USER), **filled(change, **places))
    assert re.search(told, refused(link, edge))
    assert len(qpid.ids) == 3
