"""TLS: refused at the start where it cannot work, and rotated under open streams (A6)."""

import datetime as dt
import ssl
import urllib.request
from http import HTTPStatus

import grpc
import pytest
import trustme

import ackq_broker
from ackq.v1 import admin_pb2
from tests.eventually import equals, eventually
from tests.fakes.raw_client import TIMEOUT_S, Client
from tests.wire.access.conftest import add_master
from tests.wire.operations.processes import refused_start


class Files:
    """A certificate authority, and files of a broker certificate that it issued."""

    def __init__(self, folder):
        self.authority = trustme.CA()
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.client_ca = folder / "clients.pem"
        self.authority.cert_pem.write_to_path(self.client_ca)
        self.issue()

    @property
    def ca(self):
        return self.authority.cert_pem.bytes()

    def issue(self, **fields):
        """Writes a new certificate and key; returns the certificate."""
        made = self.authority.issue_cert("127.0.0.1", "localhost", **fields)
        made.private_key_pem.write_to_path(self.key)
        self.key.chmod(0o600)
        made.cert_chain_pems[0].write_to_path(self.cert)
        return made.cert_chain_pems[0].bytes().decode()

    def environment(self, **more):
        return {
            "ACKQ_BROKER_TLS_CERT": str(self.cert),
            "ACKQ_BROKER_TLS_KEY": str(self.key),
            **more,
        }


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def served(broker):
    """The certificate that a new connection gets."""
    host, port = broker.endpoint.split(":")
    return ssl.get_server_certificate((host, int(port)))


def started(broker):
    """The broker's log, once its last start line is written, which may be after readiness."""
    return eventually("the line", broker.log_file.read_text, lambda log: " serving on " in log)


def info(client, **how):
    return client.admin.ServerInfo(admin_pb2.ServerInfoRequest(), timeout=TIMEOUT_S, **how)


def test_certificates_are_rotated_under_open_streams(files, tmp_path):
    """A6: new connections get a rotated certificate, and open streams go on publishing.

    The start logs the end date of a certificate that ends soon.
    """
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(days=3)
    files.issue(not_after=soon)
    with (
        ackq_broker.embedded(tmp_path / "data", sync=False, env=files.environment()) as broker,
        Client(broker.endpoint, ca=files.ca) as client,
        client.publisher() as stream,
    ):
        assert f"expires on {soon:%Y-%m-%d}" in broker.log_file.read_text()
        client.declare()
        first = served(broker)
        second = files.issue()
        eventually("the new certificate", lambda: served(broker), equals(second))
        assert first != second
        stream.publish(1, b"a", routing_key="q")
        assert stream.confirmed(1) == {1}
        with Client(broker.endpoint, ca=files.ca) as later:
            info(later)
        files.key.write_text("nothing")
        log = broker.log_file.read_text
        eventually("the refusal of the key", log, lambda text: "holds no private key" in text)
        assert served(broker) == second
        stream.publish(2, b"b", routing_key="q")
        assert stream.confirmed(1, first=2) == {2}


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain"])
def test_clients_that_do_not_fit(files, tmp_path, tls):
    """A6: a plain client, and one that trusts another authority, get nothing and log nothing.

    So does a client with TLS, of a plain broker.
    """
    env = files.environment() if tls else {}
    others = (None, trustme.CA().cert_pem.bytes()) if tls else (files.ca,)
    with ackq_broker.embedded(tmp_path / "data", sync=False, env=env) as broker:
        log = started(broker)
        for ca in others:
            with Client(broker.endpoint, ca=ca) as client, pytest.raises(grpc.RpcError) as refused:
                info(client)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        with Client(broker.endpoint, ca=files.ca if tls else None) as client:
            info(client)
        assert broker.log_file.read_text() == log


def test_files_that_cannot_work(files, tmp_path):
    """A6: missing, unmatched or expired files refuse the start with one line; nothing is made."""
    data = tmp_path / "data"
    tls = ("--listen", "127.0.0.1:0", "--tls-cert", files.cert, "--tls-key", files.key)
    assert "needs a certificate and its key" in refused_start(data, *tls[:4])
    missing = refused_start(data, *tls[:4], "--tls-key", tmp_path / "no.pem")
    told = f"The file {tmp_path}/no.pem of --tls-key cannot be read: No such file or directory.\n"
    assert missing.endswith(told)
    other = files.authority.issue_cert("localhost").private_key_pem.bytes()
    files.key.write_bytes(other)
    assert "is not the key of the certificate" in refused_start(data, *tls)
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    files.issue(not_before=long_ago, not_after=long_ago + dt.timedelta(days=30))
    assert f"{files.cert} of --tls-cert expired on 2020-01-31" in refused_start(
        tmp_path / "data", *tls
    )
    files.cert.write_text("hello")
    assert "holds no certificate in PEM" in refused_start(data, *tls)


def test_other_machines_need_tls_and_users(files, tmp_path):
    """A6, A1: listening to other machines without TLS and users is refused, unless `--insecure`."""
    tls = ("--tls-cert", files.cert, "--tls-key", files.key)
    everywhere = ("--listen", "0.0.0.0:0")
    path = tmp_path / "users.toml"
    add_master(path)
    for options, missing in (
        ((), "TLS (--tls-cert, --tls-key) and users (--users)"),
        (tls, "users (--users)"),
        (("--users", path), "TLS (--tls-cert, --tls-key)"),
    ):
        line = refused_start(tmp_path / "data", *everywhere, *options)
        assert f"does not listen on 0.0.0.0 without {missing}: " in line


def by_grpc(broker, files, client):
    """Whether a client with this certificate is admitted by gRPC."""
    with Client(broker.endpoint, ca=files.ca, cert=client) as called:
        try:
            info(called)
        except grpc.RpcError as refused:
            return refused.code() is not grpc.StatusCode.UNAVAILABLE
        return True


def by_https(broker, files, client):
    """Whether a client with this certificate is admitted by HTTPS."""
    context = ssl.create_default_context(cadata=files.ca.decode())
    if client is not None:
        client.configure_cert(context)
    try:
        answer = urllib.request.urlopen(
            f"https://{broker.http_endpoint}/livez", context=context, timeout=TIMEOUT_S
        )
    except OSError:
        return False
    return answer.status == HTTPStatus.OK


def changes_authority(files, authority):
    """Replaces the file of the clients' authority."""
    authority.cert_pem.write_to_path(files.client_ca.with_suffix(".new"))
    files.client_ca.with_suffix(".new").replace(files.client_ca)


@pytest.mark.parametrize("lets_in", [by_grpc, by_https])
def test_clients_with_certificates_alone(files, tmp_path, lets_in):
    """A6: with a client authority, gRPC and HTTPS admit its certificates alone.

    No other client, nor one without a certificate; after the authority is replaced, its former
    ones neither.
    """
    former, present = trustme.CA(), trustme.CA()
    old, new = (each.issue_cert("client") for each in (former, present))
    changes_authority(files, former)
    env = files.environment(ACKQ_BROKER_TLS_CLIENT_CA=str(files.client_ca))
    with ackq_broker.embedded(tmp_path / "data", sync=False, env=env, http=True) as broker:
        admitted = [lets_in(broker, files, each) for each in (None, old, new)]
        assert admitted == [False, True, False]
        changes_authority(files, present)
        eventually("the new authority", lambda: lets_in(broker, files, new))
        assert not lets_in(broker, files, old)
