"""Certificates and their reload."""

import datetime as dt

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from ackq.errors import InvalidArgumentError
from ackq_broker.security.certificates import Credentials, TlsFiles


@pytest.fixture
def files(tmp_path):
    return TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")


def issue(files, **fields):
    made = trustme.CA().issue_cert("localhost", **fields)
    made.private_key_pem.write_to_path(files.key)
    files.key.chmod(0o600)
    made.cert_chain_pems[0].write_to_path(files.cert)


def in_days(days):
    return dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=days)


def test_the_second_of_two_files(files, caplog):
    """A6: replacing two files one after the other logs nothing about the moment in between."""
    issue(files, not_after=in_days(30))
    credentials = Credentials(files)
    before = files.key.read_bytes()
    issue(files, not_after=(end := in_days(40)))
    after = files.key.read_bytes()
    files.key.write_bytes(before)
    credentials.poll()
    files.key.write_bytes(after)
    credentials.poll()
    credentials.poll()
    assert caplog.records == []
    assert credentials.not_after == end


def test_authorities_of_clients(files, tmp_path, caplog):
    """A6: a client CA file without a valid certificate is refused, naming its option.

    An authority that has ended beside a valid one is warned of.
    """
    issue(files, not_after=in_days(30))
    clients = tmp_path / "clients.pem"
    clients.write_text("x")
    with pytest.raises(InvalidArgumentError, match="--tls-client-ca holds no certificate"):
        Credentials(files._replace(client_ca=clients))
    trustme.CA().cert_pem.write_to_path(clients)
    assert Credentials(files._replace(client_ca=clients)).server() is not None
    ended = certificate(rsa.generate_private_key(65537, 2048), not_after=in_days(-1))
    clients.write_bytes(clients.read_bytes() + ended)
    assert Credentials(files._replace(client_ca=clients)).server() is not None
    (said,) = [each.message for each in caplog.records]
    assert said.startswith(f"the certificate {clients} expires on ")
    clients.write_bytes(ended)
    with pytest.raises(InvalidArgumentError, match="--tls-client-ca expired on"):
        Credentials(files._replace(client_ca=clients))


def test_a_certificate_that_openssl_refuses(files, caplog):
    """A6: a certificate that OpenSSL refuses is treated like any invalid file; the next is read."""
    issue(files, not_after=in_days(30))
    credentials = Credentials(files)
    weak(files)
    for expected in (0, 1, 1):
        credentials.poll()
        assert len(caplog.records) == expected
    assert "cannot be served: ee key too small. The broker keeps" in caplog.text
    issue(files, not_after=(end := in_days(40)))
    credentials.poll()
    assert credentials.not_after == end


def weak(files):
    """Writes a certificate with a key of 1,024 bits."""
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505 - the point
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files.cert.write_bytes(certificate(key, not_after=in_days(30)))


def certificate(key, not_after):
    """A certificate signed by its own key, in PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(in_days(-2))
        .not_valid_after(not_after)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def test_a_key_that_everybody_can_read_is_named(files, caplog):
    """A6: a world-readable private key is warned of at the start; a certificate is public."""
    issue(files, not_after=in_days(30))
    files.key.chmod(0o644)
    Credentials(files)
    (said,) = [each.message for each in caplog.records if "chmod" in each.message]
    assert said.endswith(f"(mode 0644): chmod 600 {files.key}")
