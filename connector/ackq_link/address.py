"""Address of a remote broker, the link's credentials there, and explanations of TLS failures.

Invariant: no `repr`, message or log shows a password, wherever it was set.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackq.errors import InvalidArgumentError, TlsError
from ackq.secret_files import warn_if_public


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a TLS connection; empty: the system's authorities, no client certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """The SSL context, which checks the broker's certificate and name. Raises TlsError."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.cert:
                warn_if_public(self.key or self.cert)
                context.load_cert_chain(self.cert, self.key or None)
        except OSError as error:  # ssl.SSLError too
            raise TlsError(
                f"The files of TLS ({', '.join(filter(None, (self.ca, self.cert, self.key)))})"
                f" cannot be used: {error.strerror or error}. Name PEM files that this user can"
                " read, the key without a passphrase."
            ) from error
        return context


# Remedies by OpenSSL's X509_V_ERR code, which says what is wrong with the broker's certificate.
_UNTRUSTED: Final = (
    "Name the PEM file of the authority that signed the broker's certificate with ca."
)
_OTHER_NAME: Final = (
    "Write the URL with a name that the broker's certificate has, or give the broker one that has"
    " this name."
)
_EXPIRED: Final = "Renew the broker's certificate; if that is valid, set this machine's clock."
_VERIFY: Final[Mapping[int, str]] = {
    9: _EXPIRED,
    10: _EXPIRED,
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
# Remedies by the broker's TLS alert, as OpenSSL names it.
_WANTED: Final = "The broker wants a client certificate: name its PEM files with cert and key."
_REFUSED: Final = (
    "The broker refuses the client certificate: give cert and key of a valid one, signed by an"
    " authority that the broker trusts."
)
_ALERTS: Final[Mapping[str, str]] = {
    "CERTIFICATE_REQUIRED": _WANTED,
    "UNKNOWN_CA": _REFUSED,
    "CERTIFICATE_EXPIRED": _REFUSED,
    "BAD_CERTIFICATE": _REFUSED,
    "CERTIFICATE_UNKNOWN": _REFUSED,
    "CERTIFICATE_REVOKED": _REFUSED,
    "UNSUPPORTED_CERTIFICATE": _REFUSED,
}
_OTHERWISE: Final = (
    "Check that the port speaks TLS, that ca names the authority of the broker's certificate, and"
    " that the certificate has this host name."
)


def tls_failure(url: str, tls: Tls, error: BaseException) -> TlsError:
    """The error of a failed TLS connection, with its cause and the remedy.

    Args:
        url: The broker's, without user and password.
        tls: The files that it was tried with.
        error: The exception that the library raised.
    """
    said = str(error.args[-1]) if error.args else type(error).__name__
    remedy = _OTHERWISE
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message or said
        remedy = _VERIFY.get(error.verify_code, _OTHERWISE)
    elif isinstance(error, ssl.SSLError):
        alert = (getattr(error, "reason", None) or "").partition("_ALERT_")[2]
        # Up to TLS 1.2 a missing certificate and a refused one give the same alert.
        missing = alert in {"BAD_CERTIFICATE", "HANDSHAKE_FAILURE"} and not tls.cert
        remedy = _WANTED if missing else _ALERTS.get(alert, _OTHERWISE)
    return TlsError(f"{url}: TLS failed: {said.rstrip('.')}. {remedy}")


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A remote broker's URL, and the link's user and TLS files.

    Attributes:
        url: `amqp://HOST[:PORT][/VHOST]`, `nats://HOST[:PORT]`, or amqps and tls, without user and
            password.
        user: The user's name at the remote broker; empty: none.
        password: The user's password; never shown.
        password_file: A file that holds the password instead, read at each connect.
        tls: Files, for amqps.
        heartbeat_s: A connection that is silent for three times as long is cut.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    tls: Tls = field(default_factory=Tls)
    heartbeat_s: int = 10

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith(("amqps:", "tls:"))

    def secret(self) -> str:
        """The password. Raises InvalidArgumentError when its file cannot be read."""
        if not self.password_file:
            return self.password
        try:
            warn_if_public(self.password_file)
            # The whole first line: a password may begin and end with blanks.
            text = Path(self.password_file).read_text(encoding="utf-8")
            return text.partition("\n")[0].removesuffix("\r")
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"The password file {self.password_file} cannot be read:"
                f" {getattr(error, 'strerror', None) or 'it is not text'}. Name another one."
            ) from error
