"""Reasons of a failed connection, found by a TLS handshake with real certificates."""

import re
import socketserver
import threading
from pathlib import Path

import grpc
import pytest

from ackq.client import Security, close_channels, grpc_channel
from ackq.client.connection import handshake
from ackq.errors import InvalidArgumentError, TlsError
from tests.fakes.certificates import Authority


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The authority that both sides trust."""
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("others"))


def why(port, security=None, host="localhost"):
    found = handshake.refusal(f"{host}:{port}", security or Security())
    assert isinstance(found, TlsError)
    assert "\n" not in found.message
    return found.message


def test_who_fits_is_not_refused(serve, ours):
    """Plain text, TLS, another server name, and mutual TLS give no refusal."""
    me = ours.issue("me")
    port = serve(identity=ours.issue("localhost"))
    assert handshake.refusal(f"127.0.0.1:{serve()}", Security()) is None
    assert handshake.refusal(f"localhost:{port}", Security(tls=True, ca=ours.ca)) is None
    named = Security(tls=True, ca=ours.ca, server_name="localhost")
    assert handshake.refusal(f"127.0.0.1:{port}", named) is None
    mutual = serve(identity=ours.issue("localhost"), client_ca=ours.ca)
    both = Security(tls=True, ca=ours.ca, cert=me.cert, key=me.key)
    assert handshake.refusal(f"localhost:{mutual}", both) is None


def test_a_time_that_is_not_now(serve, ours):
    past = serve(identity=ours.issue("localhost", from_day=-2, to_day=-1))
    future = serve(identity=ours.issue("localhost", from_day=1, to_day=2))
    trusting = Security(tls=True, ca=ours.ca)
    assert "has expired. Renew it: the broker reads the files of --tls-cert" in why(past, trusting)
    assert "is not valid yet. Check the clocks" in why(future, trusting)


def test_another_name(serve, ours):
    """The message lists the names in the broker's certificate."""
    port = serve(identity=ours.issue("broker.example", "b.example"))
    trusting = Security(tls=True, ca=ours.ca)
    names = "is for 'broker.example', 'b.example', not for"
    assert f"{names} 'localhost'" in why(port, trusting)
    assert f"{names} '127.0.0.1'" in why(port, trusting, "127.0.0.1")
    assert "tlsServerName in Spark, --server-name" in why(port, trusting)


def test_tls_on_one_side(serve, ours):
    for client_ca in (None, ours.ca):
        port = serve(identity=ours.issue("localhost"), client_ca=client_ca)
        assert "wants TLS, and this client speaks plain text" in why(port)
    plain = why(serve(), Security(tls=True, ca=ours.ca))
    assert "speaks plain text, and this client wants TLS. Start the broker with --tls-cert" in plain


def test_a_client_without_its_certificate(serve, ours, others):
    """Mutual TLS refuses no certificate, one of another authority, and an expired one."""
    port = serve(identity=ours.issue("localhost"), client_ca=ours.ca)
    none = why(port, Security(tls=True, ca=ours.ca))
    assert "and this client has none. Name its files: tlsCert and tlsKey in Spark" in none
    for cert, key in (others.issue("me"), ours.issue("me", from_day=-2, to_day=-1)):
        said = why(port, Security(tls=True, ca=ours.ca, cert=cert, key=key))
        assert f"does not accept this client's certificate '{cert}'" in said
        assert "--tls-client-ca" in said


def test_texts_in_place_of_files(serve, ours, others):
    """Certificates may be given as text; a refusal names the field and the Spark option."""
    me = ours.issue("me")
    texts = {"ca_pem": ours.ca, "cert_pem": me.cert, "key_pem": me.key}
    texts = {name: Path(path).read_text() for name, path in texts.items()}
    port = serve(identity=ours.issue("localhost"), client_ca=ours.ca)
    both = Security(tls=True, **texts)
    assert handshake.refusal(f"localhost:{port}", both) is None
    grpc.channel_ready_future(grpc_channel(f"localhost:{port}", both)).result(30)
    close_channels()
    other = others.issue("me")
    texts |= {"cert_pem": Path(other.cert).read_text(), "key_pem": Path(other.key).read_text()}
    said = why(port, Security(tls=True, **texts))
    assert "this client's certificate cert_pem (tlsCertPem in Spark). It has expired" in said
    said = why(port, Security(tls=True, ca_pem=Path(others.ca).read_text()))
    assert "those in ca_pem (tlsCaPem in Spark) (" in said


@pytest.fixture
def closing():
    """The endpoint of a listener that closes each connection at once."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("tls", [False, True])
def test_a_broker_that_is_away_refuses_nobody(closing, tls):
    """A closed port or socket, or a connection closed at once, is left to the retries."""
    assert handshake.refusal("127.0.0.1:1", Security(tls=tls)) is None
    assert handshake.refusal(closing, Security(tls=tls)) is None
    assert handshake.refusal("unix:/nowhere/ackq", Security(tls=tls)) is None


def test_files_are_checked_before_a_connection(ours, others, tmp_path):
    """Bad certificate files are refused by name, which gRPC's connection errors lack."""
    me, other = ours.issue("me"), others.issue("me")
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_bytes(b"\xff no PEM")
    for given, problem in (
        ({"ca": str(tmp_path / "none")}, "none' cannot be read: No such file"),
        ({"ca": str(rubbish)}, "rubbish.pem' holds no PEM certificate of an authority"),
        ({"cert": me.cert, "key": other.key}, f"'{other.key}' is not the key of"),
        ({"cert": str(rubbish), "key": me.key}, "are not a PEM certificate and a PEM private key"),
        ({"cert": me.cert, "key": str(tmp_path / "gone")}, "gone' cannot be read"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(problem)):
            grpc_channel("localhost:1", Security(tls=True, **given))
    one_line = Path(ours.ca).read_text().replace("\n", " ")
    with pytest.raises(InvalidArgumentError, match=r"text ca_pem .*holds no PEM.* line breaks"):
        grpc_channel("localhost:1", Security(tls=True, ca_pem=one_line))


def test_a_key_that_everybody_can_read_is_named(ours, caplog):
    """A world-readable private key is warned of, a world-readable certificate is not."""
    me = ours.issue("me-too")
    Path(me.key).chmod(0o644)
    Path(me.cert).chmod(0o644)
    grpc_channel("localhost:1", Security(tls=True, cert=me.cert, key=me.key))
    assert caplog.text.count("chmod 600") == caplog.text.count(f"chmod 600 {me.key}") == 1
