"""Finds out why no secure connection to a broker can be made; gRPC only reports that it failed.

gRPC's own messages come from its C library, name neither file nor remedy, and in half of the cases
are "Socket closed". So after a failed connection the handshake is repeated with Python's `ssl`,
whose errors have codes. No request is sent, only the handshake or, to find out whether the broker
speaks plain HTTP/2, its preface. Anything but a clear refusal gives None: `retry` handles a broker
that is down or restarts.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from ackq.client.connection.security import Security, host_of
from ackq.errors import InvalidArgumentError, TlsError
from ackq.secret_files import warn_if_public

_TIMEOUT_S: Final = 2.0
_READ_BYTES: Final = 1 << 14
# A broker that is being stopped may close a connection at any point; only a second refusal in a row
# counts.
_AGAIN_AFTER_S: Final = 0.2

# OpenSSL's codes of a failed verification (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED = 9, 10
_WRONG_NAMES: Final = (62, 64)
# HTTP/2: the client's preface with empty settings, and the type of the frame that answers it.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
_TYPE_AT, _SETTINGS = 3, 4
_HEADER_BYTES: Final = 9

_CA: Final = "tlsCa or tlsCaPem in Spark, --ca on a command line, Security(ca=...)"
_CERT: Final = "tlsCert and tlsKey in Spark, --cert and --key on a command line"
_NAME: Final = "tlsServerName in Spark, --server-name on a command line"


def refusal(endpoint: str, security: Security) -> TlsError | None:
    """The error if both sides cannot agree on a connection; None if that is not the cause.

    Args:
        endpoint: `host:port`, or `unix:path`.
        security: The client's settings.
    """
    reason = _why(endpoint, security)
    if reason is None:
        return None
    time.sleep(_AGAIN_AFTER_S)
    return None if _why(endpoint, security) is None else TlsError(reason, endpoint=endpoint)


def check_files(security: Security) -> None:
    """Raises InvalidArgumentError, naming the file, for a file that is not the expected PEM file.

    gRPC accepts any bytes, and then fails each connection without naming a file.
    """
    _context(security)


def _why(endpoint: str, security: Security) -> str | None:
    try:
        if security.tls:
            return _why_not_tls(endpoint, security)
        return _why_not_plain(endpoint)
    except OSError:  # an ssl.SSLError is one
        return None


def _why_not_plain(endpoint: str) -> str | None:
    """The reason for a client without TLS: the broker wants TLS. Raises OSError if it does not."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    anyone.set_alpn_protocols(["h2"])
    with _connected(endpoint) as raw:
        _shake_hands(anyone, raw)
        return (
            f"The broker at {endpoint} wants TLS, and this client speaks plain text. Turn TLS on"
            f" with the file of the broker's authority: {_CA}."
        )


def _shake_hands(context: ssl.SSLContext, raw: socket.socket) -> None:
    """Performs a TLS handshake and nothing else; raises OSError.

    It avoids `wrap_socket`: if a restarting broker resets the connection before the handshake
    begins, CPython leaves a socket open, and warns when that is garbage-collected.
    """
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(received, sent)
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            raw.sendall(sent.read())
            data = raw.recv(_READ_BYTES)
            if data:
                received.write(data)
            else:
                received.write_eof()
        else:
            raw.sendall(sent.read())
            return


def _why_not_tls(endpoint: str, security: Security) -> str | None:
    host = security.server_name or host_of(endpoint)
    try:
        with (
            _connected(endpoint) as raw,
            _context(security).wrap_socket(raw, server_hostname=host) as secured,
        ):
            # With TLS 1.3 the broker checks the client's certificate after the client is done. A
            # broker that accepts it begins with its settings, any other closes the connection.
            if secured.recv(_HEADER_BYTES):
                return None
            return _refused_client(endpoint, security)
    except ssl.SSLCertVerificationError as error:
        return _distrusted(endpoint, security, host, error)
    except ssl.SSLEOFError:  # closed before the handshake was done, as by a proxy without broker
        return None
    except ssl.SSLError:
        if not _speaks_plain(endpoint):
            raise
        return (
            f"The broker at {endpoint} speaks plain text, and this client wants TLS. Start the"
            " broker with --tls-cert and --tls-key, or leave out the client's TLS options."
        )


def _distrusted(
    endpoint: str, security: Security, host: str, error: ssl.SSLCertVerificationError
) -> str:
    if error.verify_code == _EXPIRED:
        return (
            f"The certificate of the broker at {endpoint} has expired. Renew it: the broker reads"
            " the files of --tls-cert and --tls-key again when they change. (If this machine's"
            " clock is wrong, set it.)"
        )
    if error.verify_code == _NOT_YET_VALID:
        return (
            f"The certificate of the broker at {endpoint} is not valid yet. Check the clocks of"
            " both machines."
        )
    if error.verify_code in _WRONG_NAMES:
        return (
            f"The certificate of the broker at {endpoint} is for {_names(endpoint, security)}, not"
            f" for '{host}'. Connect by that name, or say which name to expect: {_NAME}."
        )
    given = security.ca or security.ca_pem
    trusted = f"those in {security.place('ca')}" if given else "those that gRPC trusts"
    return (
        f"The certificate of the broker at {endpoint} comes from none of the authorities that this"
        f" client trusts, {trusted} ({error.verify_message}). Name the PEM file of the broker's"
        f" authority: {_CA}."
    )


def _refused_client(endpoint: str, security: Security) -> str:
    if security.cert or security.cert_pem:
        return (
            f"The broker at {endpoint} does not accept this client's certificate"
            f" {security.place('cert')}. It has expired, or comes from none of the authorities in"
            " the broker's --tls-client-ca."
        )
    return (
        f"The broker at {endpoint} wants a certificate of its clients (mutual TLS), and this client"
        f" has none. Name its files: {_CERT}."
    )


def _names(endpoint: str, security: Security) -> str:
    """The names in the broker's certificate, whose chain is trusted."""
    context = _context(security)
    context.check_hostname = False
    with _connected(endpoint) as raw, context.wrap_socket(raw) as secured:
        certificate = secured.getpeercert() or {}
    names = [f"'{pair[1]}'" for pair in certificate.get("subjectAltName", ())]
    return ", ".join(names) or "no host"


def _speaks_plain(endpoint: str) -> bool:
    """Whether the endpoint answers as an HTTP/2 server in plain text."""
    with _connected(endpoint) as raw:
        raw.sendall(_PREFACE)
        start = raw.recv(_HEADER_BYTES)
    return len(start) == _HEADER_BYTES and start[_TYPE_AT] == _SETTINGS


@contextlib.contextmanager
def _connected(endpoint: str) -> Iterator[socket.socket]:
    if endpoint.startswith("unix:"):
        family, address = socket.AF_UNIX, endpoint.removeprefix("unix:").removeprefix("//")
        with socket.socket(family) as made:
            made.settimeout(_TIMEOUT_S)
            made.connect(address)
            yield made
        return
    port = int(endpoint.rpartition(":")[2])
    with socket.create_connection((host_of(endpoint), port), _TIMEOUT_S) as made:
        yield made


def _context(security: Security) -> ssl.SSLContext:
    """An SSL context with the certificates and key of `security`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if authorities := _read(security, "ca"):
        # Each file is loaded separately, so that the error names the wrong one.
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise _bad(security, "ca", "holds no PEM certificate of an authority") from error
    else:
        context.load_default_certs()
    if _read(security, "cert") and _read(security, "key"):
        _load_identity(context, security)
    return context


def _load_identity(context: ssl.SSLContext, security: Security) -> None:
    if security.key:
        warn_if_public(security.key)
    with _as_file(security, "cert") as certificate, _as_file(security, "key") as key:
        try:
            # gRPC cannot ask for a password, and OpenSSL must not.
            context.load_cert_chain(certificate, key, password=lambda: b"-")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"is not the key of the certificate {security.place('cert')}"
                raise _bad(security, "key", problem) from error
            raise _bad(
                security,
                "cert",
                f"and the key {security.place('key')} are not a PEM certificate and a PEM"
                " private key without a password",
            ) from error


@contextlib.contextmanager
def _as_file(security: Security, name: str) -> Iterator[str]:
    """The path of a certificate or key: OpenSSL reads an identity only from files."""
    if path := getattr(security, name):
        yield path
        return
    with tempfile.NamedTemporaryFile() as file:  # only its owner can read it
        file.write(security.pem(name) or b"")
        file.flush()
        yield file.name


def _read(security: Security, name: str) -> bytes | None:
    try:
        return security.pem(name)
    except OSError as error:
        raise _bad(security, name, f"cannot be read: {error.strerror}") from error


def _bad(security: Security, name: str, problem: str) -> InvalidArgumentError:
    where = f"file {security.place(name)} {problem}."
    if getattr(security, f"{name}_pem"):
        where = f"text {security.place(name)} {problem}. Its line breaks are part of it."
    return InvalidArgumentError(f"The certificate {where}", path=getattr(security, name))
