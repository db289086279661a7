"""Passwords of remote brokers, and TLS failures as messages, each with its remedy."""

import ssl

import pytest

from ackq.errors import InvalidArgumentError, TlsError
from ackq_link.address import Tls, tls_failure
from ackq_link.amqp091.address import BrokerAddress
from ackq_link.amqp1.address import Amqp1Address


@pytest.mark.parametrize("kind", [BrokerAddress, Amqp1Address])
def test_a_password_is_never_shown(tmp_path, caplog, kind):
    """No output shows a password; its file is read at each connect, and warned of if readable."""
    assert "hidden" not in repr(kind("amqp://h", "u", "hidden"))
    file = tmp_path / "password"
    address = kind("amqp://h", "u", password_file=str(file))
    with pytest.raises(InvalidArgumentError, match="Name another one"):
        address.secret()
    file.write_text("first\n")
    file.chmod(0o604)
    assert address.secret() == "first"
    file.write_text(" with blanks \r\n")
    assert address.secret() == " with blanks "
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"chmod 600 {file}" in caplog.text
    assert "with blanks" not in caplog.text


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
        (verification(62, "Hostname mismatch"), "a name that the broker's certificate has"),
        (verification(1, "something else"), "Check that the port speaks TLS"),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "name its PEM files with cert and key"),
        (alert("TLSV1_ALERT_UNKNOWN_CA"), "refuses the client certificate"),
        (alert("WRONG_VERSION_NUMBER"), "Check that the port speaks TLS"),
        (ConnectionAbortedError("SSL handshake is taking long"), "Check that the port speaks TLS"),
    ],
)
def test_remedies(error, remedy):
    """L17: the remedy follows from OpenSSL's error code or the broker's alert."""
    text = tls_failure("amqps://h", Tls(cert="c.pem"), error).message
    assert text.startswith("amqps://h: TLS failed: ")
    assert remedy in text
    # Before TLS 1.3 a missing and a wrong client certificate give the same alert.
    missing = tls_failure("amqps://h", Tls(), alert("SSLV3_ALERT_BAD_CERTIFICATE"))
    assert "wants a client" in missing.message
