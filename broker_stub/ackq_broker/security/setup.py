"""Security options of `serve`, validated before the port is opened (A6)."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import NamedTuple

from ackq.errors import InvalidArgumentError
from ackq_broker.security.certificates import Credentials, TlsFiles
from ackq_broker.security.users_file import UsersFile


class SecurityOptions(NamedTuple):
    """Security options of `serve`; with none of them only this machine may connect."""

    users: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    insecure: bool = False

    def credentials(self) -> Credentials | None:
        """The certificates; None without TLS. Raises InvalidArgumentError as `Credentials`."""
        if self.tls_cert is None or self.tls_key is None:
            if self.tls_cert or self.tls_key or self.tls_client_ca:
                raise InvalidArgumentError(
                    "TLS needs a certificate and its key: give --tls-cert and --tls-key."
                )
            return None
        return Credentials(TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca))

    def users_file(self) -> UsersFile | None:
        """The users file; None without users. Raises InvalidArgumentError as `UsersFile`."""
        return UsersFile(self.users) if self.users is not None else None

    def check_host(self, host: str) -> None:
        """Refuses to serve other machines without TLS and users (A6).

        Args:
            host: A name or address; empty: a Unix socket of this machine.

        Raises:
            InvalidArgumentError: It is not a loopback address, and TLS or users are missing.
        """
        if self.insecure or _is_local(host):
            return
        missing = [
            text
            for text, there in (
                ("TLS (--tls-cert, --tls-key)", self.tls_cert),
                ("users (--users)", self.users),
            )
            if there is None
        ]
        if missing:
            raise InvalidArgumentError(
                f"The broker does not listen on {host} without {' and '.join(missing)}: anyone "
                "who reaches that address could read and delete everything. Set up what is "
                "missing, listen on 127.0.0.1, or give --insecure.",
                host=host,
            )


def _is_local(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, whatever its address
