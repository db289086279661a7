"""TLS failures as messages, each with its remedy."""

import ssl

import pytest

from ackq.errors import TlsError
from ackq_link.address import Tls, tls_failure


def test_a_key_that_everybody_can_read_is_told(tmp_path, caplog):
    """A world-readable key file is warned of, also a certificate file that holds the key."""
    for name, files in (("key", {"cert": "cert", "key": "key"}), ("both", {"cert": "both"})):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
        with pytest.raises(TlsError):
            Tls(**{field: str(tmp_path / file) for field, file in files.items()}).context()
        assert f"chmod 600 {tmp_path / name}" in caplog.text


def verification(code, message):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


def alert(name):
    error = ssl.SSLError(1, f"[SSL: {name}] alert")
    error.reason = name
    return error


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (verification(10, "certificate has expired"), "Renew the broker's certificate"),
        (verification(9, "certificate is not yet valid"), "set this machine's clock"),
        (verification(20, "unable to get local issuer certificate"), "authority that signed"),
        (verification(18, "self-signed certificate"), "authority that signed"),
        (verification(62, "Hostname mismatch"), "a name that the broker's certificate has"),
        (verification(64, "IP address mismatch"), "a name that the broker's certificate has"),
        (verification(1, "something else"), "Check that the port speaks TLS"),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "name its PEM files with cert and key"),
        (alert("TLSV1_ALERT_UNKNOWN_CA"), "refuses the client certificate"),
        (alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "refuses the client certificate"),
        (alert("WRONG_VERSION_NUMBER"), "Check that the port speaks TLS"),
        (ConnectionAbortedError("SSL handshake is taking long"), "Check that the port speaks TLS"),
    ],
)
def test_remedies(error, remedy):
    """L17: the remedy follows from OpenSSL's error code or the broker's alert."""
    text = tls_failure("amqps://h", Tls(cert="c.pem"), error).message
    assert text.startswith("amqps://h: TLS failed: ")
    assert remedy in text


@pytest.mark.parametrize(
    ("cert", "remedy"), [("", "wants a client"), ("c.pem", "refuses the client")]
)
def test_one_alert_for_two_causes(cert, remedy):
    """L17: before TLS 1.3 a missing and a wrong client certificate give the same alert."""
    error = alert("SSLV3_ALERT_BAD_CERTIFICATE")
    assert remedy in tls_failure("amqps://h", Tls(cert=cert), error).message
