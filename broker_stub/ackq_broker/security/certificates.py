"""The broker's certificates (A6): checked at the start, read again when they change.

A connection keeps the certificate it began with; new connections get the new one, and no stream
ends.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from ackq.errors import InvalidArgumentError
from ackq.secret_files import warn_if_public
from ackq_broker.security.users_file import FileVersion, version_of

_log = logging.getLogger(__name__)

# From this many days before its end on, the end of a certificate is logged each day.
SOON_DAYS: Final = 14
_DAY_S: Final = 86_400


class TlsFiles(NamedTuple):
    """Paths of the TLS files, in PEM; with `client_ca` clients must present a certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class _LoadedFiles(NamedTuple):
    """Matching files, loaded for gRPC and for HTTPS; the certificates' ends, the server's first."""

    configuration: grpc.ServerCertificateConfiguration
    https: ssl.SSLContext
    ends: list[tuple[Path, datetime]]


class Credentials:
    """The server's credentials, which follow changes of their files.

    Args:
        files: The paths of the files.

    Raises:
        InvalidArgumentError: A file is missing, they do not match each other, or the certificate is
            not valid now.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = self._versions()
        self._failure: InvalidArgumentError | None = None
        self._loaded = _load(files)
        self._warned = datetime.min.replace(tzinfo=UTC)
        self._warn()

    @property
    def not_after(self) -> datetime:
        """The end of the certificate's validity, in UTC."""
        return self._loaded.ends[0][1]

    def server(self) -> grpc.ServerCredentials:
        """The credentials for gRPC; each new connection uses the files as loaded at that time."""
        return grpc.dynamic_ssl_server_credentials(
            self._loaded.configuration,
            lambda: self._loaded.configuration,
            require_client_authentication=self._files.client_ca is not None,
        )

    def https(self) -> ssl.SSLContext:
        """The context for HTTPS; each new connection uses the files as loaded at that time.

        An authority cannot be removed from a context, so each handshake switches to the current
        context.
        """
        context = _https(self._files)

        def present(connection: ssl.SSLObject, _name: str | None, _context: object) -> None:
            connection.context = self._loaded.https

        context.sni_callback = present
        return context

    def poll(self) -> None:
        """Reads the files again when one has changed.

        Files that do not match are logged once, at the next poll: two files that are replaced one
        after the other do not match for a moment.
        """
        versions = self._versions()
        changed, self._seen = versions != self._seen, versions
        if changed:
            try:
                _log.info("%s", self.reload())
            except InvalidArgumentError as error:
                self._failure = error
        elif self._failure is not None:
            _log.error("%s The broker keeps the previous certificate.", self._failure)
            self._failure = None
        self._warn()

    def reload(self) -> str:
        """Reads the files again for new connections; returns a text for the log.

        Raises:
            InvalidArgumentError: They do not match each other; nothing was changed.
        """
        self._failure = None
        self._loaded = _load(self._files)
        return f"the certificate {self._files.cert} is valid until {_utc(self.not_after)}"

    def _warn(self) -> None:
        now = datetime.now(UTC)
        if (now - self._warned).total_seconds() < _DAY_S:
            return
        for path, end in self._loaded.ends:
            if (end - now).days < SOON_DAYS:
                self._warned = now
                _log.warning("the certificate %s expires on %s", path, _utc(end))

    def _versions(self) -> list[FileVersion | None]:
        return [version_of(path) for path in self._files if path is not None]


def _load(files: TlsFiles) -> _LoadedFiles:
    """Loads and checks the files for gRPC and HTTPS; raises InvalidArgumentError."""
    chain, key = _read("--tls-cert", files.cert), _read("--tls-key", files.key)
    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
        certified = _bytes(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unfit("--tls-cert", files.cert, "holds no certificate in PEM") from error
    try:
        public = load_pem_private_key(key, None).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unfit("--tls-key", files.key, "holds no private key in PEM") from error
    except TypeError as error:
        raise _unfit(
            "--tls-key", files.key, "is encrypted; the broker needs an unencrypted key"
        ) from error
    if _bytes(public) != certified:
        raise _unfit("--tls-key", files.key, f"is not the key of the certificate {files.cert}")
    _check_valid("--tls-cert", files.cert, certificate)
    ends = [(files.cert, certificate.not_valid_after_utc)]
    roots = None
    if files.client_ca is not None:
        roots, authorities = _authorities(files.client_ca)
        ends += [(files.client_ca, each.not_valid_after_utc) for each in authorities]
    try:
        https = _https(files)
    except (OSError, ssl.SSLError) as error:
        reason = (getattr(error, "reason", "") or str(error)).lower().replace("_", " ")
        raise _unfit("--tls-cert", files.cert, f"cannot be served: {reason}") from error
    warn_if_public(files.key)
    configuration = grpc.ssl_server_certificate_configuration([(key, chain)], roots)
    return _LoadedFiles(configuration, https, ends)


def _authorities(path: Path) -> tuple[bytes, list[x509.Certificate]]:
    """The authorities for clients, at least one of them valid: an old one may end beside it."""
    roots = _read("--tls-client-ca", path)
    try:
        found = x509.load_pem_x509_certificates(roots)
    except ValueError as error:
        raise _unfit("--tls-client-ca", path, "holds no certificate in PEM") from error
    now = datetime.now(UTC)
    if not any(each.not_valid_before_utc <= now < each.not_valid_after_utc for each in found):
        _check_valid("--tls-client-ca", path, found[0])
    return roots, found


def _https(files: TlsFiles) -> ssl.SSLContext:
    """An SSL context of the files as they are now.

    Without session tickets: a client that resumes with a ticket presents no certificate, and its
    authority may have been replaced.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.client_ca)
    context.load_cert_chain(files.cert, files.key)
    return context


def _check_valid(option: str, path: Path, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        raise _unfit(option, path, f"expired on {_utc(certificate.not_valid_after_utc)}")
    if certificate.not_valid_before_utc > now:
        raise _unfit(option, path, f"is not valid before {_utc(certificate.not_valid_before_utc)}")


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unfit(option, path, f"cannot be read: {error.strerror}") from error


def _unfit(option: str, path: Path, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The file {path} of {option} {problem}.", file=path)


def _bytes(public: object) -> bytes:
    found: bytes = public.public_bytes(  # type: ignore[attr-defined] # each kind of key has it
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return found


def _utc(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
